"""The scheduler between the loop and the engine: facts come in as on the bus, decisions go out."""

from services.scheduler.decide import configure
from services.scheduler.decision import Decision
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import messages as m
from tests.support import world

CONF = configure()


def scheduler(settle_s: float = 1.0) -> SchedulerState:
    return SchedulerState(DecisionSettings(), gang_message=10, settle_s=settle_s)


def put(to: SchedulerState, kind: str, body: dict) -> None:
    assert to.fold([world.fact(kind, body)]) == []


def small_world(to: SchedulerState) -> None:
    put(to, "nodes", world.stored_node("n1", uid="n1", cpu="8", memory="8Gi", pods="20"))
    put(to, "queues", world.stored_queue("default", uid="q", capability={"cpu": "8"}))


def add_group(to: SchedulerState, name: str, phase: str, **spec) -> None:
    put(to, "podgroups", world.stored_group(f"ns/{name}", uid=name, phase=phase, **spec))


def add_pod(to: SchedulerState, name: str, of: str, node: str = "", **more) -> None:
    put(to, "pods", world.stored_pod(f"ns/{name}", uid=name, group=of, node=node, **more))


def step(by: SchedulerState, now: float, cycle: int, conf=CONF) -> Decision:
    """One cycle whose statuses are published, as the loop does it."""
    decision = by.decide(conf, now=now, cycle=cycle, token=1)
    if not decision.plan.is_empty:
        by.assume_statuses(decision.plan)
    return decision


def groups_of(decision: Decision) -> dict[str, m.DesiredPodGroup]:
    return {
        status.message.key: status.message
        for status in decision.statuses
        if isinstance(status.message, m.DesiredPodGroup)
    }


def test_a_counter_that_was_held_back_goes_out_although_another_group_was_told_of_meanwhile():
    under = scheduler()
    small_world(under)
    add_group(under, "settled", "Running")
    add_pod(under, "settled-0", "settled", "n1")
    assert step(under, 0.0, 1).statuses == []
    add_group(under, "new", "Pending")
    assert set(groups_of(step(under, 0.1, 2))) == {"ns/new"}
    assert groups_of(step(under, 5.0, 3))["ns/settled"].running == 1
    assert groups_of(step(under, 9.0, 4)) == {}


def test_a_group_whose_pods_never_come_lets_the_next_one_in_after_the_timeout():
    under = scheduler()
    small_world(under)
    add_group(under, "gone", "Inqueue", minResources={"cpu": "6"})
    add_group(under, "next", "Pending", minResources={"cpu": "6"})
    assert list(step(under, 0.0, 1).expired_reservations) == []
    early = step(under, 299.0, 2)
    assert list(early.expired_reservations) == []
    assert groups_of(early)["ns/next"].phase == "Pending"
    decision = step(under, 300.0, 3)
    assert list(decision.expired_reservations) == ["ns/gone"]
    assert groups_of(decision)["ns/next"].phase == "Inqueue"


def test_volcanos_way_keeps_the_reservation_for_ever():
    conf = configure(
        'actions: "enqueue"\ntiers: [{plugins: [{name: proportion}]}]\n'
        "configurations: [{name: enqueue, arguments: {inqueueTimeout: 0}}]\n"
    )
    under = scheduler()
    small_world(under)
    add_group(under, "gone", "Inqueue", minResources={"cpu": "6"})
    add_group(under, "next", "Pending", minResources={"cpu": "6"})
    step(under, 0.0, 1, conf)
    decision = step(under, 1e6, 2, conf)
    assert list(decision.expired_reservations) == []
    assert groups_of(decision)["ns/next"].phase == "Pending"


def test_a_bind_tells_the_binder_which_claims_must_have_their_volumes_first():
    under = scheduler()
    small_world(under)
    waits = {"provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
    put(under, "storageclasses", {"metadata": {"name": "sc", "uid": "sc"}, **waits})
    meta = {"name": "c", "namespace": "ns", "uid": "claim-uid"}
    put(under, "persistentvolumeclaims", {"metadata": meta, "spec": {"storageClassName": "sc"}})
    add_group(under, "g", "Inqueue")
    add_pod(under, "g-0", "g", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    (command,) = step(under, 0.0, 1).commands
    assert isinstance(command, m.BindGang)
    assert command.binds[0].claims == (m.ClaimUse(claim="ns/c", uid="claim-uid"),)


def test_figures_are_told_after_facts_and_to_a_new_leader_and_not_by_idle_cycles_me3():
    under = scheduler()
    small_world(under)
    add_group(under, "g", "Inqueue")
    add_pod(under, "g-0", "g")
    first = step(under, 0.0, 1)
    assert first.sample.figures is not None
    assert [figures.name for figures in first.sample.figures.queues] == ["default"]
    assert [placement.job for placement in first.placements] == ["ns/g"]
    add_pod(under, "g-0", "g", "n1")
    for cycle in range(2, 5):  # statuses settle
        step(under, 10.0 * cycle, cycle)
    assert step(under, 50.0, 5).sample.figures is None
    add_pod(under, "more-0", "g")
    assert step(under, 60.0, 6).sample.figures is not None
    for cycle in range(7, 10):
        step(under, 10.0 * cycle, cycle)
    assert step(under, 100.0, 10).sample.figures is None
    under.recover([], [])
    assert step(under, 110.0, 11).sample.figures is not None
    assert step(under, 120.0, 12, configure()).sample.figures is not None


def bound(by: SchedulerState, decision: Decision, at: float) -> None:
    """Say what the binder says of the binds that were decided."""
    for command in decision.commands:
        assert isinstance(command, m.BindGang)
        items = tuple(
            m.ItemOutcome(pod=b.pod, uid=b.uid, result=m.Result.BOUND, node=b.node)
            for b in command.binds
        )
        by.outcomes([m.Outcome(intent=command.id, items=items, instance="b", time=at)])


def test_pods_are_timed_from_their_creation_to_each_stage_once_me1():
    made = 1767225600.0  # 2026-01-01T00:00:00Z
    under = scheduler()
    small_world(under)
    add_group(under, "g", "Inqueue")
    add_pod(under, "g-0", "g")
    add_pod(under, "other-0", "other", "n1")  # has its node already
    first = step(under, made + 1.0, 1)
    assert first.sample.watched_s == (1.0,)
    assert [placement.tasks_since_s for placement in first.placements] == [(1.0,)]
    bound(under, first, made + 3.0)
    add_pod(under, "g-0", "g", "n1")
    second = step(under, made + 4.0, 2)
    assert (second.sample.watched_s, second.sample.bound_s) == ((), (3.0,))
    third = step(under, made + 5.0, 3)
    assert (third.sample.watched_s, third.sample.bound_s) == ((), ())


def test_who_begins_to_lead_does_not_tell_again_what_the_leader_before_has_told_me1():
    under = scheduler()
    small_world(under)
    add_group(under, "g", "Inqueue", minMember=2)
    add_pod(under, "g-0", "g")
    under.recover([], [])
    assert step(under, 1767225601.0, 1).sample.watched_s == ()
