"""Unschedulable gangs where actions evict: visited only when one might gain something."""

from collections import Counter
from typing import Any

import pytest

from services.scheduler.decide import CyclePart, configure
from services.scheduler.decision import Decision
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.policy.catalog import PLUGINS
from services.scheduler.policy.unschedulable_policy import unschedulable_policy
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import messages as m
from tests.support import world
from tests.support.laws import configured
from tests.unit.scheduler.test_scheduler_state import add_group, add_pod, put
from tests.unit.scheduler.test_unschedulable_pool import Cycles, looked_at

GANGS = 40


def evicting(actions: str, plugin: str = "capacity", *, volcano: bool = False) -> Any:
    return configured(
        f'actions: "{actions}"\n'
        f"volcanoEvictions: {str(volcano).lower()}\n"
        "tiers: [{plugins: [{name: priority}, {name: gang, enablePreemptable: false}]}, "
        f"{{plugins: [{{name: predicates}}, {{name: {plugin}}}]}}]"
    )


class Waiting:
    """One node that four pods of two CPUs fill but for some room, and gangs of four that wait."""

    def __init__(
        self,
        actions: str,
        *,
        room: int = 0,
        deserved: int = 40,
        plugin: str = "capacity",
        capability: dict[str, str] | None = None,
        volcano: bool = False,
        **spec: Any,
    ) -> None:
        self.plays = 0
        self.by = SchedulerState(
            DecisionSettings(), gang_message=10, settle_s=0.0, ended=self._ended
        )
        for name, value in (("low", -1), ("high", 1)):
            meta = {"name": name, "uid": name}
            put(self.by, "priorityclasses", {"metadata": meta, "value": value})
        self.queue("default", deserved, capability=capability or {})
        self.queue("other", 0)
        self.node("n1", 8 + room)
        self.run("old", "n1", 4, least=4)
        for number in range(GANGS):
            self.wait(f"w{number:03}", **spec)
        self.cycles = Cycles(self.by, evicting(actions, plugin, volcano=volcano))
        self.unschedulable = self.cycles.settle().unschedulable

    def _ended(self, part: CyclePart, _: str) -> None:
        self.plays += part is CyclePart.OPENED

    def queue(self, name: str, deserved: int, memory: str = "0", **more: Any) -> None:
        amounts = {"cpu": str(deserved), "memory": memory, "pods": "500"}
        put(self.by, "queues", world.stored_queue(name, uid=name, deserved=amounts, **more))

    def node(self, name: str, cpu: int) -> None:
        put(self.by, "nodes", world.stored_node(name, uid=name, cpu=str(cpu)))

    def run(self, name: str, node: str, pods: int, least: int = 1, **spec: Any) -> None:
        add_group(self.by, name, "Running", minMember=least, **spec)
        for number in range(pods):
            self.pod(f"{name}-{number}", name, node, cpu="2")

    def pod(self, name: str, of: str, node: str = "", **more: Any) -> None:
        add_pod(self.by, name, of, node, **more)

    def wait(self, name: str, pods: int = 4, cpu: str = "1", **spec: Any) -> None:
        priority = spec.pop("priorityClassName", "")
        queue = spec.pop("queue", "default")
        add_group(self.by, name, "Inqueue", minMember=pods, priorityClassName=priority, queue=queue)
        for number in range(pods):
            self.pod(f"{name}-{number}", name, cpu=cpu, **spec)

    def leave(self, name: str, of: str, node: str) -> None:
        """Have a running pod told to go; it takes its time."""
        body = world.stored_pod(f"ns/{name}", uid=name, group=of, node=node, cpu="2")
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        put(self.by, "pods", body)

    def drop(self, group_: str, pods: int = 4) -> None:
        for kind, name in [("pods", f"{group_}-{n}") for n in range(pods)] + [
            ("podgroups", group_)
        ]:
            gone = m.Fact(kind=kind, key=f"ns/{name}", uid=name, rv="2", op=m.Op.DELETE)
            assert self.by.fold([gone]) == []

    def cycle(self) -> Decision:
        self.plays = 0
        return self.cycles.run()

    def evicted(self) -> set[str]:
        """Run a cycle; return the jobs that lose pods."""
        commands = self.cycle().commands
        victims = [v for c in commands if isinstance(c, m.Evict) for v in c.victims]
        return {victim.pod.rpartition("-")[0] for victim in victims}


@pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])
def test_gangs_without_victims_are_not_looked_at(action):
    waiting = Waiting(f"allocate, {action}")
    waiting.wait("small", 1)
    decision = waiting.cycle()
    assert [why.job for why in decision.full_plan.explanations] == ["ns/small"]
    assert (decision.commands, decision.unschedulable, waiting.plays) == ([], GANGS, 1)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_gangs_are_looked_at_when_a_less_important_job_of_their_queue_begins_to_run(action):
    waiting = Waiting(f"allocate, {action}")
    waiting.node("n2", 10)
    waiting.run("less", "n2", 5, priorityClassName="low")
    assert waiting.evicted() == {"ns/less"}
    assert waiting.plays == 2


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_gangs_are_looked_at_when_a_queue_that_deserves_less_begins_to_run(action):
    waiting = Waiting(f"allocate, {action}")
    waiting.node("n2", 10)
    waiting.run("much", "n2", 5, queue="other")
    assert waiting.evicted() == {"ns/much"}


def test_gangs_are_looked_at_when_another_queue_deserves_less_than_before():
    waiting = Waiting("allocate, reclaim")
    waiting.queue("other", 10)
    waiting.node("n2", 10)
    waiting.run("much", "n2", 5, least=5, queue="other")
    assert waiting.evicted() == set()
    waiting.queue("other", 1)
    assert waiting.evicted() == {"ns/much"}


def test_gangs_are_looked_at_when_their_own_queue_deserves_more_than_before():
    waiting = Waiting("allocate, reclaim", deserved=8)
    waiting.node("n2", 10)
    waiting.run("much", "n2", 5, queue="other")
    assert waiting.evicted() == set()
    waiting.queue("default", 40)
    assert waiting.evicted() == {"ns/much"}


def test_gangs_are_looked_at_when_another_queue_gets_too_much_in_this_very_cycle():
    """What allocate gives a queue may make its running pods victims of the reclaim after it."""
    waiting = Waiting("allocate, reclaim")
    waiting.queue("other", 8)
    waiting.node("n2", 9)
    waiting.run("much", "n2", 4, least=4, queue="other")
    waiting.wait("w", 1, cpu="2")
    for _ in range(3):
        assert waiting.evicted() == set()
    assert waiting.cycle().unschedulable == GANGS + 1
    waiting.wait("drop", 1, queue="other")
    assert waiting.evicted() == {"ns/much"}


def test_an_unschedulable_gang_waits_with_single_pods_for_the_room_there_is():
    """It has more than it deserves then, by which a job of another queue takes from its queue."""
    waiting = Waiting("allocate, preempt, reclaim", room=1, deserved=8)
    waiting.queue("other", 2)
    waiting.drop("w000")
    waiting.wait("preemptor", 1, cpu="2", queue="other")
    assert waiting.evicted() == {"ns/old"}


def test_single_pods_wait_in_the_order_of_keys():
    waiting = Waiting("allocate, preempt", room=1)
    waiting.wait(
        "a000", priorityClassName="low"
    )  # unschedulable in a group of its own, after the others
    waiting.cycles.settle()
    names = []
    for _ in range(2):
        decision = waiting.cycle()
        names += [why.job for why in decision.full_plan.explanations]
    assert names == ["ns/a000"] * 2, "the others have their turns without being looked at"


@pytest.mark.parametrize(("policy", "taken"), [("Never", set()), ("", {"ns/less"})])
def test_gangs_that_may_not_preempt_have_no_prospects(policy, taken):
    waiting = Waiting("allocate, preempt", preemptionPolicy=policy)
    waiting.node("n2", 10)
    waiting.run("less", "n2", 5, priorityClassName="low")
    assert waiting.evicted() == taken
    assert waiting.plays == 1 + bool(taken)


@pytest.mark.parametrize(("action", "queue"), [("preempt", "default"), ("reclaim", "other")])
def test_a_gang_of_which_some_pods_may_preempt_has_prospects(action, queue):
    waiting = Waiting(f"allocate, {action}", preemptionPolicy="Never")
    add_group(waiting.by, "mixed", "Inqueue", minMember=2)
    for number, policy in enumerate(("Never", "Never", "", "")):
        waiting.pod(f"mixed-{number}", "mixed", cpu="1", preemptionPolicy=policy)
    assert waiting.cycles.settle().unschedulable == GANGS + 1
    waiting.node("n2", 4)
    waiting.run("less", "n2", 2, priorityClassName="low", queue=queue)
    assert waiting.evicted() == {"ns/less"}


def test_a_gang_is_entitled_to_the_sum_of_its_classes():
    waiting = Waiting("allocate, reclaim", preemptionPolicy="Never")
    add_group(waiting.by, "two", "Inqueue", minMember=4)
    for number, cpu in enumerate("1122"):
        waiting.pod(f"two-{number}", "two", cpu=cpu)
    assert waiting.cycles.settle().unschedulable == GANGS + 1
    waiting.node("n2", 8)
    waiting.run("less", "n2", 4, queue="other")
    assert waiting.evicted() == {"ns/less"}


def test_gangs_of_one_queue_are_told_apart_by_priority_and_by_who_may_preempt():
    waiting = Waiting("allocate, preempt", preemptionPolicy="Never")
    waiting.wait("asks")
    waiting.wait("above", priorityClassName="high", preemptionPolicy="Never")
    waiting.cycles.settle()
    lot = waiting.by.cluster_state.jobs.unschedulable.at_allocate
    assert Counter(len(g.members) for g in lot.groups("default")) == Counter([GANGS, 1, 1])
    waiting.node("n2", 10)
    waiting.run("less", "n2", 5, priorityClassName="low")
    assert waiting.evicted() == {"ns/less"}


def test_all_gangs_take_part_in_a_cycle_that_evicts_for_another_job():
    waiting = Waiting("allocate, preempt")
    waiting.wait("best", 1, priorityClassName="high")
    decision = waiting.cycle()
    assert any(isinstance(command, m.Evict) for command in decision.commands)
    assert (looked_at(decision) >= GANGS, waiting.plays) == (True, 2)


def test_gangs_that_contend_in_vain_are_looked_at_without_a_second_play_of_each_cycle():
    waiting = Waiting("allocate, preempt")
    waiting.node("n2", 2)
    waiting.run("less", "n2", 1, priorityClassName="low")  # a place for one pod of two at most
    plays = []
    for _ in range(40):
        assert waiting.cycle().unschedulable == 0
        plays.append(waiting.plays)
    assert plays[0] == 2, "they were unschedulable"
    assert 35 <= plays.count(1) <= 38, "and are unschedulable again each half a minute"


@pytest.mark.parametrize(("allocatable", "unschedulable"), [("true", GANGS), ("false", 0)])
def test_room_that_an_overused_queue_is_refused_by_allocate_alone_is_a_prospect(
    allocatable, unschedulable
):
    plugin = f"proportion, enabledAllocatable: {allocatable}"
    capability = {"cpu": "8", "pods": "4"}
    waiting = Waiting("allocate, preempt", room=4, capability=capability, plugin=plugin)
    assert waiting.unschedulable == unschedulable


PLACING = {
    "allocate, backfill": True,
    "allocate, preempt, reclaim": True,
    "preempt, allocate": False,
    "allocate, preempt, allocate": False,
    "allocate, shuffle, preempt": False,
}


@pytest.mark.parametrize("actions", PLACING)
def test_gangs_are_unschedulable_where_actions_evict_for_preemptors_after_the_last_allocate(
    actions,
):
    found = unschedulable_policy(evicting(actions), PLUGINS, contending=True)
    assert found.at_allocate is PLACING[actions]


def test_no_gang_is_unschedulable_where_evictions_are_not_asked_about():
    assert not unschedulable_policy(evicting("allocate, preempt"), PLUGINS).at_allocate
    assert unschedulable_policy(evicting("allocate, backfill"), PLUGINS).at_allocate


def test_no_gang_is_unschedulable_where_a_plugin_holds_jobs_and_actions_evict():
    text = 'actions: "allocate, preempt"\ntiers: [{plugins: [{name: gang}, {name: %s}]}]'
    assert unschedulable_policy(configure(text % "drf"), PLUGINS, contending=True).at_allocate
    assert not unschedulable_policy(
        configure(text % "reservation"), PLUGINS, contending=True
    ).at_allocate


COUNTING = "capacity, arguments: {countReleasing: true}"
"""Pods on their way out count for allocate's question, and not for reclaim's (A07)."""


def test_gangs_are_looked_at_when_nodes_have_room_that_only_reclaim_may_give_them():
    waiting = Waiting("allocate, reclaim", plugin=COUNTING, capability={"cpu": "16"})
    waiting.node("n2", 12)
    waiting.run("gone", "n2", 4)
    assert waiting.cycles.settle().unschedulable == GANGS
    for number in range(4):
        waiting.leave(f"gone-{number}", "gone", "n2")
    decision = waiting.cycle()
    assert (decision.unschedulable, waiting.plays) == (0, 2)


@pytest.mark.parametrize(("room", "taken"), [(0, set()), (1, {"ns/much"})])
def test_what_reclaim_gives_one_queue_is_known_when_it_comes_to_the_next(room, taken):
    """The queue in the middle waits for room as it is, and has more than it deserves then."""
    waiting = Waiting("allocate, reclaim", plugin=COUNTING, room=room, volcano=True)
    waiting.queue("default", 40, priority=3)
    waiting.queue("other", 8, memory="4Gi", capability={"cpu": "10"}, priority=2)
    waiting.queue("last", 8, priority=1)
    waiting.node("n2", 10)
    waiting.run("much", "n2", 4, least=4, queue="other")
    waiting.run("gone", "n2", 1, queue="other")
    waiting.leave("gone-0", "gone", "n2")
    waiting.wait("poor", queue="last")
    assert waiting.cycles.settle().unschedulable == GANGS + 1
    asked = {"requests": {"cpu": "1", "memory": "1Gi"}}
    waiting.wait("preemptor", 1, queue="other", containers=[{"name": "c", "resources": asked}])
    assert waiting.evicted() == taken
