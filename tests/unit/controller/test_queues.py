"""Queues: the table of states, orders to whole trees of them, what is put right (Q02, Q04)."""

import json
from itertools import product
from pathlib import Path

import pytest

from services.controller.queue.plan import (
    TABLE,
    Change,
    QueueAction,
    RejectedCommand,
    SetMark,
    SetState,
    action_of,
    carry_out,
    follow_parent,
    mark_patch,
    next_state,
    parent_patch,
    synced_state,
    targets,
)
from shared.api.batch import Command, Target
from shared.api.keys import CLOSED_BY_PARENT
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue, QueueState
from tests.support.structs import queue

CORPUS = Path(__file__).parents[4] / "shared" / "conformance" / "controller" / "queue.state"
CASES = {path.stem: path for path in sorted(CORPUS.glob("*.json"))}

OPEN, CLOSED, CLOSING = QueueState.OPEN, QueueState.CLOSED, QueueState.CLOSING


def in_tree(
    name: str, state: QueueState | None = OPEN, *, parent: str = "root", marked: bool = False
) -> Queue:
    """Return a queue of a tree; `marked`: its parent closed it."""
    annotations = {CLOSED_BY_PARENT: "true"} if marked else {}
    above = {"parent": parent} if parent and name != "root" else {}
    return queue(name, state=state, annotations=annotations, **above)


def world(*queues: Queue) -> dict[str, Queue]:
    return {q.metadata.name: q for q in (in_tree("root"), *queues)}


def command(action: str, name: str = "a", uid: str = "") -> Command:
    target = Target(api_version="scheduling.volcano.sh/v1beta1", kind="Queue", name=name, uid=uid)
    return Command(metadata=ObjectMeta(name="order"), action=action, target=target)


@pytest.mark.parametrize("name", CASES)
def test_a_queue_changes_its_state_as_volcano_recorded(name: str) -> None:
    case = json.loads(CASES[name].read_bytes())
    said = case["given"]["queue"]["status"]["state"]
    state = QueueState(said) if said in frozenset(QueueState) else QueueState.UNKNOWN
    found = next_state(state, QueueAction(case["action"]), groups=len(case["given"]["podGroups"]))
    assert found.value == case["expect"]["state"]


def test_every_state_has_a_row_for_every_action_q02() -> None:
    assert TABLE.keys() == set(product((None, *QueueState), QueueAction))


@pytest.mark.parametrize(
    ("state", "groups", "wanted"),
    [
        pytest.param(None, 0, OPEN, id="new"),
        pytest.param(OPEN, 3, None, id="open-stays-open"),
        pytest.param(CLOSING, 1, None, id="closing-waits-for-its-last-group"),
        pytest.param(CLOSING, 0, CLOSED, id="closing-is-closed-once-empty"),
        pytest.param(CLOSED, 0, None, id="closed-stays-closed"),
        pytest.param(CLOSED, 1, CLOSING, id="closed-with-a-group-closes-again"),
        pytest.param(QueueState.UNKNOWN, 0, None, id="unknown-waits-for-an-order"),
    ],
)
def test_a_sync_writes_only_what_differs_q02(
    state: QueueState | None, groups: int, wanted: QueueState | None
) -> None:
    assert synced_state(in_tree("a", state), groups=groups) == wanted


@pytest.mark.parametrize(
    ("before", "action", "groups", "changes"),
    [
        pytest.param(
            [in_tree("a")], "CloseQueue", {}, [SetState(queue="a", state=CLOSED)], id="close-empty"
        ),
        pytest.param(
            [in_tree("a")],
            "CloseQueue",
            {"a": 2, "b": 1},
            [SetState(queue="a", state=CLOSING)],
            id="close-held",
        ),
        pytest.param([in_tree("a", CLOSED)], "CloseQueue", {}, [], id="close-closed"),
        pytest.param(
            [in_tree("a", CLOSED)],
            "OpenQueue",
            {"a": 1},
            [SetState(queue="a", state=OPEN)],
            id="open",
        ),
        pytest.param(
            [in_tree("a"), in_tree("b", parent="a"), in_tree("c", CLOSED, parent="a")],
            "CloseQueue",
            {"b": 1},
            [
                SetState(queue="a", state=CLOSED),
                SetMark(queue="b", closed_by_parent=True),
                SetState(queue="b", state=CLOSING),
            ],
            id="close-cascades-and-leaves-what-was-closed",
        ),
        pytest.param(
            [in_tree("a"), in_tree("b", parent="a"), in_tree("c", parent="b")],
            "CloseQueue",
            {},
            [
                SetState(queue="a", state=CLOSED),
                SetMark(queue="b", closed_by_parent=True),
                SetState(queue="b", state=CLOSED),
                SetMark(queue="c", closed_by_parent=True),
                SetState(queue="c", state=CLOSED),
            ],
            id="close-reaches-grandchildren",
        ),
        pytest.param(
            [in_tree("a", CLOSED), in_tree("b", parent="a", marked=True), in_tree("c", parent="b")],
            "CloseQueue",
            {},
            [
                SetState(queue="b", state=CLOSED),
                SetMark(queue="c", closed_by_parent=True),
                SetState(queue="c", state=CLOSED),
            ],
            id="close-goes-on-after-a-crash",
        ),
        pytest.param(
            [
                in_tree("a", CLOSED),
                in_tree("b", CLOSED, parent="a", marked=True),
                in_tree("c", CLOSED, parent="a"),
            ],
            "OpenQueue",
            {},
            [
                SetState(queue="a", state=OPEN),
                SetState(queue="b", state=OPEN),
                SetMark(queue="b", closed_by_parent=False),
            ],
            id="open-opens-the-marked-ones-only",
        ),
        pytest.param(
            [in_tree("a"), in_tree("b", parent="a", marked=True)],
            "OpenQueue",
            {},
            [SetMark(queue="b", closed_by_parent=False)],
            id="open-goes-on-after-a-crash",
        ),
        pytest.param(
            [in_tree("a", parent="b"), in_tree("b", parent="a")],
            "CloseQueue",
            {},
            [
                SetState(queue="a", state=CLOSED),
                SetMark(queue="b", closed_by_parent=True),
                SetState(queue="b", state=CLOSED),
            ],
            id="parents-in-a-ring-end",
        ),
        pytest.param([in_tree("a")], "PaintQueue", {}, [], id="an-unknown-action-changes-nothing"),
    ],
)
def test_an_order_changes_a_queue_and_those_below_it_q04(
    before: list[Queue], action: str, groups: dict[str, int], changes: list[Change]
) -> None:
    found = carry_out(action_of(command(action)), "a", world(*before), groups)
    assert found == tuple(changes)


@pytest.mark.parametrize(
    ("action", "name", "before", "why"),
    [
        pytest.param("CloseQueue", "root", [], "cannot be closed", id="root"),
        pytest.param(
            "OpenQueue",
            "b",
            [in_tree("a", CLOSED), in_tree("b", CLOSED, parent="a")],
            "a is Closed",
            id="parent-closed",
        ),
        pytest.param(
            "OpenQueue",
            "b",
            [in_tree("a", CLOSING), in_tree("b", CLOSED, parent="a")],
            "a is Closing",
            id="parent-closing",
        ),
    ],
)
def test_an_order_that_cannot_be_is_refused_with_the_reason_q04(
    action: str, name: str, before: list[Queue], why: str
) -> None:
    found = carry_out(QueueAction(action), name, world(*before), {})
    assert isinstance(found, RejectedCommand)
    assert why in found.why


@pytest.mark.parametrize(
    ("before", "groups", "changes"),
    [
        pytest.param([in_tree("p"), in_tree("a", parent="p")], {}, [], id="both-open"),
        pytest.param(
            [in_tree("p", CLOSED), in_tree("a", None, parent="p")],
            {},
            [SetMark(queue="a", closed_by_parent=True), SetState(queue="a", state=CLOSED)],
            id="made-below-a-closed-one",
        ),
        pytest.param(
            [in_tree("p", CLOSING), in_tree("a", parent="p"), in_tree("b", parent="a")],
            {"a": 1},
            [
                SetMark(queue="a", closed_by_parent=True),
                SetState(queue="a", state=CLOSING),
                SetMark(queue="b", closed_by_parent=True),
                SetState(queue="b", state=CLOSED),
            ],
            id="moved-below-a-closing-one-with-those-below-it",
        ),
        pytest.param(
            [in_tree("p", CLOSED), in_tree("a", parent="p", marked=True)],
            {},
            [SetState(queue="a", state=CLOSED)],
            id="marked-and-not-closed-yet",
        ),
        pytest.param(
            [in_tree("p"), in_tree("a", CLOSED, parent="p", marked=True)],
            {},
            [SetState(queue="a", state=OPEN), SetMark(queue="a", closed_by_parent=False)],
            id="moved-below-an-open-one",
        ),
        pytest.param(
            [in_tree("p"), in_tree("a", CLOSED, parent="p")], {}, [], id="closed-by-somebody-stays"
        ),
        pytest.param(
            [in_tree("p", CLOSED), in_tree("a", CLOSED, parent="p")], {}, [], id="both-closed"
        ),
        pytest.param(
            [in_tree("p", None), in_tree("a", CLOSED, parent="p", marked=True)],
            {},
            [],
            id="a-parent-without-a-state-says-nothing",
        ),
        pytest.param([in_tree("a", parent="not-there")], {}, [], id="no-such-parent"),
    ],
)
def test_a_queue_does_as_the_parent_that_it_comes_below_q04(
    before: list[Queue], groups: dict[str, int], changes: list[Change]
) -> None:
    queues = world(*before)
    assert follow_parent("a", queues, groups) == tuple(changes)
    assert follow_parent("root", queues, groups) == ()


@pytest.mark.parametrize(
    ("found", "patch"),
    [
        pytest.param(in_tree("a", parent=""), {"spec": {"parent": "root"}}, id="missing"),
        pytest.param(in_tree("a", parent="b"), None, id="given"),
        pytest.param(in_tree("root"), None, id="root-has-none"),
    ],
)
def test_a_missing_parent_becomes_root_q04(found: Queue, patch: dict[str, object] | None) -> None:
    assert parent_patch(found) == patch


@pytest.mark.parametrize(
    ("name", "uid", "meant"),
    [("a", "uid-a", True), ("a", "", True), ("a", "uid-of-another", False), ("b", "", False)],
)
def test_a_command_is_for_the_queue_it_names(name: str, uid: str, meant: bool) -> None:
    assert targets(command("CloseQueue", name, uid), in_tree("a")) is meant


def test_a_mark_is_set_and_taken_away_without_touching_other_annotations_q04() -> None:
    set_, taken = (mark_patch(SetMark(queue="a", closed_by_parent=b)) for b in (True, False))
    assert set_ == {"metadata": {"annotations": {CLOSED_BY_PARENT: "true"}}}
    assert taken == {"metadata": {"annotations": {CLOSED_BY_PARENT: None}}}


def test_a_chain_of_three_thousand_queues_is_closed_and_opened_q04() -> None:
    names = [f"q{number}" for number in range(3_000)]
    chain = [
        in_tree(name, parent=above)
        for name, above in zip(names, ["root", *names[:-1]], strict=True)
    ]
    closed = carry_out(QueueAction.CLOSE, "q0", world(*chain), {})
    assert not isinstance(closed, RejectedCommand)
    assert [c.queue for c in closed if isinstance(c, SetState)] == names
    shut = [
        in_tree(name, CLOSED, parent=above, marked=True)
        for name, above in zip(names, ["root", *names[:-1]], strict=True)
    ]
    opened = carry_out(QueueAction.OPEN, "q0", world(*shut), {})
    assert not isinstance(opened, RejectedCommand)
    assert [c.queue for c in opened if isinstance(c, SetState)] == names
    assert [c.queue for c in opened if isinstance(c, SetMark)] == names[::-1]
