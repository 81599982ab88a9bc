"""Runs our own cases, and the recorded corpus where it lies beside the project."""

import json
from pathlib import Path

import pytest

from services.admission.rules.catalogue import HOOKS
from tests.conformance.report import Grade, summary
from tests.conformance.run import cases_in, run_case

OWN = Path(__file__).parent / "cases"
CORPUS = Path(__file__).parents[3] / "shared" / "conformance"
NOT_RUN = {"scheduler/allocate/TestAllocateWithDRA-01"}
"""Recorded cases that need what Pumice has not: the allocation of devices by the scheduler."""
OURS = ("scheduler", "api", "controller", "webhooks")


@pytest.mark.parametrize("path", list(cases_in([OWN])), ids=lambda path: path.stem)
def test_our_own_case_is_decided_as_written(path):
    verdict = run_case(path)
    assert verdict.grade is Grade.PASS, verdict


def test_there_is_a_case_for_every_action_and_plugin_family():
    stems = " ".join(path.stem for path in cases_in([OWN]))
    words = ("enqueue", "allocate", "backfill", "priority", "drf", "proportion", "predicates")
    assert [word for word in words if word not in stems] == []


def test_there_is_a_case_for_every_hook_of_admission_w01():
    cases = [json.loads(path.read_text()) for path in cases_in([OWN])]
    hooks = {f"/{case['webhook']}" for case in cases if case["kind"] == "webhook"}
    assert hooks == set(HOOKS)


def test_a_case_that_is_decided_otherwise_than_recorded_fails(tmp_path):
    case = json.loads((OWN / "binpack-fuller.json").read_text())
    (pod,) = case["actual"][0]["binds"]
    case["actual"][0]["binds"][pod] = "elsewhere"
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(case))
    assert run_case(changed).grade is Grade.FAIL


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.timeout(300)
def test_no_recorded_case_fails(kind, record_property):
    """Say what ran; where the corpus is absent that is none, and our own cases stand alone."""
    verdicts = [run_case(path) for path in cases_in([CORPUS / kind])] if CORPUS.exists() else []
    record_property("corpus", summary(verdicts))
    print(f"{kind}: {summary(verdicts)}")
    assert [str(v) for v in verdicts if v.grade is Grade.FAIL] == []
    assert {v.case for v in verdicts if v.grade is Grade.UNSUPPORTED} <= NOT_RUN
