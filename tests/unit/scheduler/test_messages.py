"""Plans to messages: whatever a plan holds, each message fits, and so does its outcome."""

import msgspec
import pytest

from pumice.testing import Cluster
from services.binder.intents.steps import MESSAGE_MAX
from services.scheduler import messages
from services.scheduler.engine.plan import Eviction, GangBinds, Plan
from shared.contracts import messages as m
from shared.contracts.messages import Preemptor
from shared.contracts.streams import COMMAND_BYTES

LONG = "x" * 253
"""As long as a name in Kubernetes can be."""
TAKEN = 1024 * 1024 - 512
"""What NATS takes of a payload by default, beside headers."""


def raw(message: msgspec.Struct) -> int:
    """Size without deflating: texts that cannot be deflated are allowed."""
    return len(msgspec.json.encode(message))


def gang(pods: int, **fields: object) -> GangBinds:
    binds = tuple(
        m.Bind(**{"pod": f"{LONG[:63]}/{LONG}", "uid": f"uid-{i:032}", "node": LONG, **fields})
        for i in range(pods)
    )
    return GangBinds(job=f"ns/{LONG}", job_uid="u", queue=LONG, binds=binds)


def victims(count: int, preemptor: str = "", **fields: object) -> tuple[Eviction, ...]:
    key = f"{LONG[:63]}/{LONG}"
    return tuple(
        Eviction(
            pod=key,
            uid=f"uid-{i:032}",
            node=LONG,
            job=key,
            owner_job=key,
            queue=LONG,
            reason="reclaim",
            preemptor_uid=preemptor,
        )
        for i in range(count)
    )


def commands(plan: Plan, most: int = 500) -> list[m.Command]:
    return messages.commands(plan, token=1, gang_message=most)


def items(command: m.Command) -> tuple[m.Bind, ...] | tuple[m.Victim, ...]:
    return command.binds if isinstance(command, m.BindGang) else command.victims


@pytest.mark.parametrize(
    "plan",
    [
        Plan(cycle=1, binds=(gang(5_000),)),
        Plan(cycle=1, binds=(gang(300, annotations={"a": LONG * 10}),)),
        Plan(cycle=1, evictions=victims(5_000)),
        Plan(cycle=1, evictions=victims(5_000, "p")),
    ],
    ids=["a gang", "annotations", "evictions", "evictions for one pod"],
)
@pytest.mark.parametrize("most", [500, 100_000])
def test_pods_with_the_longest_names_fit_into_their_messages(plan: Plan, most: int) -> None:
    sent = commands(plan, most)
    asked = [bind.uid for gang in plan.binds for bind in gang.binds]
    asked += [eviction.uid for eviction in plan.evictions]
    assert [item.uid for command in sent for item in items(command)] == asked
    assert max(map(raw, sent)) < COMMAND_BYTES + 2_000
    assert len({command.id for command in sent}) == len(sent)


def test_the_outcome_of_the_largest_intent_fits_as_well() -> None:
    (command, *_) = commands(Plan(cycle=1, binds=(gang(500),)))
    outcome = m.Outcome(
        intent=command.id,
        job=f"ns/{LONG}",
        items=tuple(
            m.ItemOutcome(
                pod=bind.pod,
                uid=bind.uid,
                result=m.Result.CONFLICT,
                node=LONG,
                rv="9" * 20,
                retry=m.Retry.NEVER,
                message="\x01" * MESSAGE_MAX,
            )
            for bind in items(command)
        ),
        instance=LONG,
        time=1e9,
    )
    assert raw(outcome) < TAKEN


def test_evictions_are_split_by_count_and_each_part_nominates_the_preemptor() -> None:
    nomination = Preemptor(pod="ns/p", uid="p", node="n1")
    plan = Plan(cycle=1, evictions=victims(25, "p"), nominations=(nomination,))
    sent = commands(plan, 10)
    assert [len(items(command)) for command in sent] == [10, 10, 5]
    assert {c.preemptor for c in sent if isinstance(c, m.Evict)} == {
        m.Preemptor(pod="ns/p", uid="p", node="n1")
    }


@pytest.mark.parametrize(("letters", "travels"), [(253, True), (254, False)])
def test_an_owner_with_a_name_that_no_object_can_have_does_not_travel(
    letters: int,
    travels: bool,
) -> None:
    name = "x" * letters
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": "j",
        "controller": True,
    }
    world = Cluster().node("n1").queue("default").group("g")
    world.pod("g-0", "g", cpu="1", metadata={"ownerReferences": [owner]})
    (command,) = commands(world.decide())
    assert items(command)[0].owner_job == (f"ns/{name}" if travels else "")


def test_a_pod_that_is_too_large_by_itself_travels_by_itself() -> None:
    large = gang(1, annotations={"a": "x" * COMMAND_BYTES})
    few = gang(2)
    plan = Plan(
        cycle=1,
        binds=(GangBinds(job="ns/g", job_uid="u", queue="q", binds=few.binds + large.binds),),
    )
    assert [len(items(command)) for command in commands(plan)] == [2, 1]
