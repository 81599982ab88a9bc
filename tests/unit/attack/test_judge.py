"""The judge of `make attack` sees what it is there for, and nothing in an honest life."""

import copy
import json

import pytest

from tests.attack.arena import memory_limits_mib
from tests.attack.churn import FAULTS as CHURN
from tests.attack.faults import FAULTS
from tests.attack.installations import DOORS, INSTALLATIONS, PLAIN, SINGLES
from tests.attack.judge import AttackJudge, double_bindings
from tests.attack.report import BEGIN, END, Round, page, table
from tests.support.fleet import SERVICES

POD = {
    "metadata": {
        "namespace": "n",
        "name": "gang-w-0",
        "uid": "u1",
        "annotations": {"volcano.sh/job-name": "gang", "volcano.sh/job-version": "0"},
    },
    "spec": {"containers": []},
    "status": {"phase": "Pending"},
}
JOB = {
    "metadata": {"namespace": "n", "name": "gang", "uid": "j1"},
    "status": {"state": {"phase": "Completed"}, "succeeded": 3},
}


def changed(obj: dict, **leaves: object) -> dict:
    """Return a copy with `a__b=value` put at obj["a"]["b"]."""
    copied = copy.deepcopy(obj)
    for path, value in leaves.items():
        *way, last = path.split("__")
        at = copied
        for step in way:
            at = at[step]
        at[last] = value
    return copied


@pytest.fixture
def judge() -> AttackJudge:
    made = AttackJudge(api=None)
    made.expect("n/gang", 1)
    return made


def test_the_life_of_a_pod_and_its_job_is_no_violation(judge):
    judge.pod(POD)
    judge.pod(changed(POD, spec__nodeName="node-0"))
    judge.pod(changed(POD, spec__nodeName="node-0", status__phase="Succeeded"))
    judge._changed(JOB)
    judge.gone(changed(POD, spec__nodeName="node-0", status__phase="Succeeded"))
    assert not judge.violations
    assert set(judge.bound_s) == set(judge.ended_s) == {"n/gang"}


def test_an_index_that_runs_again_after_it_has_succeeded_is_a_violation(judge):
    judge.pod(changed(POD, spec__nodeName="node-0", status__phase="Succeeded"))
    judge.pod(changed(POD, metadata__uid="u2"))
    assert "made again" in str(judge.violations[0])


def test_a_new_version_of_a_job_may_run_its_indexes_again(judge):
    judge.pod(changed(POD, spec__nodeName="node-0", status__phase="Succeeded"))
    notes = {**POD["metadata"]["annotations"], "volcano.sh/job-version": "1"}
    judge.pod(changed(POD, metadata__uid="u2", metadata__annotations=notes))
    assert not judge.violations


def test_counts_of_a_finished_job_that_fall_are_a_violation(judge):
    judge._changed(JOB)
    judge._changed(changed(JOB, status__succeeded=2))
    assert "fell from 3 to 2" in str(judge.violations[0])


def test_a_binding_to_a_node_that_a_stranger_has_filled_for_long_is_a_violation(judge, monkeypatch):
    now = 100.0
    monkeypatch.setattr("tests.attack.judge.time.monotonic", lambda: now)
    judge.strangers = "strangers"
    judge.pod(changed(POD, metadata__namespace="strangers", spec__nodeName="node-0"))
    judge.pod(changed(POD, spec__nodeName="node-0"))
    assert not judge.violations, "the scheduler could not know yet"
    now = 110.0
    judge.pod(changed(POD, metadata__uid="u2", metadata__name="gang-w-1", spec__nodeName="node-0"))
    assert "a stranger's pod fills" in str(judge.violations[0])


def test_a_pod_that_moves_is_a_violation(judge):
    judge.pod(changed(POD, spec__nodeName="node-0"))
    judge.pod(changed(POD, spec__nodeName="node-1"))
    assert "moved" in str(judge.violations[0])


def entry(verb: str, subresource: str = "", code: int = 201) -> str:
    ref = {"resource": "pods", "subresource": subresource, "namespace": "n", "name": "p"}
    return json.dumps(
        {"verb": verb, "objectRef": ref, "responseStatus": {"code": code}, "userAgent": "x"}
    )


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([entry("create", "binding"), entry("create", "binding", code=409)], 0),
        ([entry("create", "binding"), entry("delete"), entry("create", "binding")], 0),
        ([entry("create", "binding"), entry("create", "binding")], 1),
    ],
    ids=["one was refused", "deleted in between", "bound twice"],
)
def test_the_audit_log_shows_who_was_bound_twice(entries, found, tmp_path):
    log = tmp_path / "audit.log"
    log.write_text("\n".join(entries))
    assert len(double_bindings(log)) == found


def test_a_table_stands_between_the_marks_of_its_page(tmp_path):
    held = Round("kill", "a kill", 10, (), 0.1, 0.5, 1.0, "", (), {"cache": 70})
    late = held._replace(longest_s=3.0)
    target = tmp_path / "page.md"
    target.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    page(target, [held, late], [])
    text = target.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert table([held, late]) in text
    assert "1 later than 1 s" in text
    assert "cache 70 → 70" in text
    assert (held.ok, late.ok) == (True, False)


def in_use(shard: str, *nodes: str) -> dict:
    return {"metadata": {"name": shard}, "status": {"nodesInUse": list(nodes)}}


def test_a_node_in_use_by_two_schedulers_is_a_violation(judge):
    judge.shard(in_use("volcano", "node-0", "node-1"))
    judge.shard(in_use("agent-scheduler", "node-1"))
    assert "['node-1'] are in use by agent-scheduler and by volcano" in str(judge.violations[0])


def test_a_node_that_is_given_back_before_another_uses_it_is_no_violation(judge):
    judge.shard(in_use("volcano", "node-0", "node-1"))
    judge.shard(in_use("volcano", "node-0"))
    judge.shard(in_use("agent-scheduler", "node-1"))
    assert not judge.violations
    assert judge.in_use("agent-scheduler") == {"node-1"}


def test_a_single_pod_is_complete_when_it_has_succeeded(judge):
    single = changed(POD, metadata__name="single", metadata__annotations={})
    judge.expect("n/single", 1)
    judge.pod(changed(single, spec__nodeName="node-0"))
    assert "n/single" in judge.bound_s
    assert judge.phase("n/single") != "Completed"
    judge.pod(changed(single, spec__nodeName="node-0", status__phase="Succeeded"))
    assert judge.phase("n/single") == "Completed"
    assert judge.is_single("n/single")
    assert not judge.violations


def test_memory_is_held_to_the_limits_of_the_manifests():
    limits = memory_limits_mib()
    assert limits["binder"] == 1024
    assert set(limits) >= {*SERVICES, *DOORS, SINGLES}


def test_each_fault_strikes_an_installation_that_there_is():
    assert {fault.installation for fault in FAULTS.values()} < set(INSTALLATIONS)
    doors = INSTALLATIONS["doors"]
    assert set(DOORS) <= set(doors.roles())
    assert set(DOORS).isdisjoint(INSTALLATIONS[PLAIN].roles())
    assert {target for target, _ in CHURN.values()} >= {*SERVICES, *DOORS, SINGLES}
