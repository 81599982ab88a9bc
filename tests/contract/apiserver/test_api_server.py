"""Both servers answer every case as kube-apiserver was seen to: statuses, bodies, watch events.

The answers were written down from the real server. With `PUMICE_CONTRACT_WRITE=1` in the
environment the real side writes them again, for another version of Kubernetes; none comes from the
embedded one. What that one does otherwise is in `deviations.yaml`, by reason; a case there must
deviate.
"""

import json
import os
from typing import Any

import pytest
import yaml

from tests.contract.apiserver.client import Side
from tests.contract.apiserver.playing import HERE, Case, cases, play

DEVIATIONS: dict[str, list[str]] = yaml.safe_load((HERE / "deviations.yaml").read_text("utf-8"))
DEVIATING = {case for deviating in DEVIATIONS.values() for case in deviating}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
async def test_the_server_answers_as_kube_apiserver_does(side: Side, case: Case) -> None:
    seen = await play(side, case)
    file = HERE / "answers" / f"{case.topic}.json"
    known: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    if side.kind == "real" and os.environ.get("PUMICE_CONTRACT_WRITE"):
        known[case.name] = seen
        text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False)
        file.write_text(text + "\n", encoding="utf-8")
    if side.kind == "embedded" and case.id in DEVIATING:
        assert seen != known[case.name], "it deviates no more: take it off the list"
    else:
        assert seen == known[case.name]


def test_every_listed_deviation_is_a_case() -> None:
    assert {case.id for case in cases()} >= DEVIATING
