"""Both servers answer every case as kube-apiserver was seen to: statuses, bodies, watch events.

What the embedded one does otherwise is in `deviations.yaml`, by reason; a case there must deviate.
"""

import pytest
import yaml

from tests.contract.apiserver.client import Side
from tests.contract.apiserver.playing import HERE, Case, cases, play
from tests.contract.apiserver.recorded import answer_to

DEVIATIONS: dict[str, list[str]] = yaml.safe_load((HERE / "deviations.yaml").read_text("utf-8"))
DEVIATING = {case for deviating in DEVIATIONS.values() for case in deviating}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
async def test_the_server_answers_as_kube_apiserver_does(side: Side, case: Case) -> None:
    seen = await play(side, case)
    known = answer_to(case.topic, case.name, side=side, seen=seen)
    if side.kind == "embedded" and case.id in DEVIATING:
        assert seen != known, "it deviates no more: take it off the list"
    else:
        assert seen == known


def test_every_listed_deviation_is_a_case() -> None:
    assert {case.id for case in cases()} >= DEVIATING
