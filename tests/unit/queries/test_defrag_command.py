"""`pumice defrag`: the moves that it shows, and the approval that it writes."""

import json
import shlex

import pytest

from shared.api.time import parse
from shared.api.visibility import MovedPod, ObjectRef, WhatIfStatus
from shared.jobs.defrag import approval_of
from tests.support import pages
from tests.support.answers import AnswersTransport
from tests.unit.queries.cluster import NOW
from tests.unit.queries.conftest import Run

ROOT = "/apis/scheduling.volcano.sh/v1beta1/queues/root"
PAGE = pages.ROOT / "docs" / "defragmentation.md"
BIG = ObjectRef(kind="Job", namespace="team", name="big")


def moved(number: int, cost: int = 0) -> MovedPod:
    return MovedPod(
        namespace="default",
        name=f"web-{number}",
        uid=f"uid-{number}",
        cost=cost,
        node=f"node-{number}",
        to="node-9",
        starts=BIG,
    )


MOVES = WhatIfStatus(
    starts_now=False, moves=(moved(1), moved(2, cost=5)), starting=(BIG,), makes_moves=True
)
SHOWN = """\
2 moves, cost 5
  moves     default/web-1 from node-1 to node-9 for team/big
            default/web-2 from node-2 to node-9 for team/big, cost 5
  starts    team/big
"""


@pytest.fixture
def way(way: AnswersTransport, monkeypatch: pytest.MonkeyPatch) -> AnswersTransport:
    """A cluster with moves, at a fixed time, whose root queue can be patched."""
    monkeypatch.setattr("pumice.cli.defrag.time.time", lambda: parse(NOW))
    way.answers.verdict = MOVES
    way.objects[ROOT] = {"metadata": {"name": "root"}}
    return way


def test_the_moves_are_shown_with_their_price(run: Run, way: AnswersTransport) -> None:
    assert run("defrag") == run("defrag", "--plan") == (0, SHOWN, "")
    assert [json.loads(request.body)["spec"] for request in way.asked] == [
        {"defragment": {"maxMoves": 20}}
    ] * 2


def test_the_budget_goes_with_the_question(run: Run, way: AnswersTransport) -> None:
    run("defrag", "--max-moves", "3", "--max-cost", "1.5")
    asked = {"defragment": {"maxMoves": 3, "maxCost": 1.5}}
    assert json.loads(way.asked[0].body)["spec"] == asked


def test_apply_approves_these_moves_and_no_others(run: Run, way: AnswersTransport) -> None:
    code, out, err = run("defrag", "--apply")
    assert (code, err) == (0, "")
    assert out.startswith(SHOWN)
    patch = way.asked[-1]
    assert (patch.method, patch.path) == ("PATCH", ROOT)
    text = json.loads(patch.body)["metadata"]["annotations"]["pumice.dev/defrag"]
    assert approval_of(text, now=parse(NOW)) == ("uid-1", "uid-2")
    assert approval_of(text, now=parse(NOW) + 300) == ()


def test_without_moves_there_is_nothing_to_approve(run: Run, way: AnswersTransport) -> None:
    way.answers.verdict = WhatIfStatus(starts_now=False, makes_moves=True)
    assert run("defrag", "--apply") == (3, "no move lets a waiting job start\n", "")
    assert [request.method for request in way.asked] == ["POST"]


def test_a_scheduler_without_the_action_gets_no_approval(run: Run, way: AnswersTransport) -> None:
    way.answers.verdict = WhatIfStatus(starts_now=False, moves=MOVES.moves)
    code, _, err = run("defrag", "--apply")
    assert (code, [request.method for request in way.asked]) == (1, ["POST"])
    assert "add the action defrag" in err


def test_who_does_not_see_all_moves_approves_none(run: Run, way: AnswersTransport) -> None:
    way.answers.verdict = WhatIfStatus(
        starts_now=False, moves=MOVES.moves, makes_moves=True, hidden=1
    )
    code, out, err = run("defrag", "--apply")
    assert (code, [request.method for request in way.asked]) == (1, ["POST"])
    assert "and 1 in namespaces that you may not see" in out
    assert "may not see" in err


def test_plan_and_apply_exclude_each_other(run: Run, way: AnswersTransport) -> None:
    assert run("defrag", "--plan", "--apply")[0] == 2
    assert way.asked == []


def test_each_command_of_the_page_works(run: Run, way: AnswersTransport) -> None:
    for block in pages.blocks(PAGE):
        for line in block.commands:
            if line.startswith("pumice"):
                assert run(*shlex.split(line)[1:])[0] == 0
    assert SHOWN in PAGE.read_text("utf-8")
