"""Two schedulers that live through the same history: one skips jobs, one visits all of them.

For the laws that skipping changes no decision. Each sees the statuses that it wanted itself; what
the second one decides is carried out for both.
"""

from collections.abc import Callable
from typing import Any

from services.scheduler.decision import Decision
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.scheduler_state import Measurements, SchedulerState
from shared.contracts import messages as m
from shared.contracts.usage import QueueUsage
from tests.support.world import (
    fact,
    gone,
    stored_group,
    stored_node,
    stored_pod,
    stored_queue,
)

NEVER = 10**9


class Histories:
    """The objects, and two schedulers that hear of them."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.schedulers = [
            SchedulerState(
                DecisionSettings(min_waiting_for_pool=few),
                gang_message=9,
                settle_s=0.0,
                measured=Measurements(past_usage=lambda: self.past_usage),
            )
            for few in (0, NEVER)
        ]
        self.past_usage: dict[str, QueueUsage] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.shown: list[dict[str, dict[str, Any]]] = [{}, {}]
        self.pods: dict[str, dict[str, Any]] = {}
        self.sizes: dict[str, list[str]] = {}
        self.pod_specs: dict[str, Callable[[int], dict[str, Any]]] = {}
        self.now = 0.0
        self.cycle = 0
        self.unschedulable = 0
        for name, value in (("p0", 0), ("p9", 9)):
            self.put("priorityclasses", {"metadata": {"name": name, "uid": name}, "value": value})
        for name in ("a", "b"):
            self.limit(name, "8")
        for number in range(3):
            self.node(number, "4")

    # --- objects -------------------------------------------------------------------------------

    def put(self, kind: str, body: dict[str, Any], to: int | None = None) -> None:
        for scheduler in self.schedulers if to is None else [self.schedulers[to]]:
            assert scheduler.fold([fact(kind, body)]) == []

    def delete(self, kind: str, key: str, uid: str) -> None:
        for scheduler in self.schedulers:
            assert scheduler.fold([gone(kind, key, uid)]) == []

    def limit(self, name: str, cpu: str) -> None:
        spec: dict[str, Any] = {"weight": 1, "capability": {"cpu": cpu}, "deserved": {"cpu": "4"}}
        # b has an order of its own, where the configuration has orders
        notes = {"pumice.dev/order": "best-effort"} if name == "b" else {}
        self.put("queues", stored_queue(name, uid=name, annotations=notes, **spec))

    def use(self, queue: str, user: str, seconds: float) -> None:
        """Have accounting publish what a user has used, and that the other one has used 100."""
        used = {name: {"cpu": 100.0} for name in "ab"} | {user: {"cpu": seconds}}
        message = QueueUsage(queue=queue, at=self.now, half_life_s=1000.0, users=used)
        self.past_usage = {**self.past_usage, queue: message}
        for scheduler in self.schedulers:
            scheduler.fold([])

    def node(self, number: int, cpu: str) -> None:
        name = f"n{number}"
        if cpu == "0":
            self.delete("nodes", name, name)
            return
        self.put("nodes", stored_node(name, uid=name, cpu=cpu, memory="8Gi", pods="20"))

    def submit(self, queue: str, cpus: list[str], rank: int, **more: Any) -> str:
        """Make a PodGroup; `least` is its minimum, `pod` tells more of a pod's spec by its rank."""
        name = f"g{len(self.sizes)}"
        meta = {
            "creationTimestamp": f"2026-01-01T00:00:{len(self.sizes):02}Z",
            "annotations": {"pumice.dev/user": "ab"[len(self.sizes) % 2]},
        }
        spec: dict[str, Any] = {
            "minMember": more.get("least", len(cpus)),
            "queue": queue,
            "priorityClassName": f"p{rank}",
            "minResources": {"cpu": str(sum(map(int, cpus)))},
        }
        self.sizes[name] = cpus
        self.pod_specs[name] = more.get("pod", lambda _: {})
        made = stored_group(f"ns/{name}", uid=name, phase="Pending", metadata=meta, **spec)
        self.groups[name] = made
        self.put("podgroups", self.groups[name])
        if "enqueue" not in self.config.actions:
            self.make_pods(name)
        return name

    def make_pods(self, group: str) -> None:
        for number, cpu in enumerate(self.sizes[group]):
            self.make_pod(group, number, cpu)

    def make_pod(self, group: str, number: int, cpu: str) -> None:
        name = f"{group}-{number}"
        self.pods[name] = stored_pod(
            f"ns/{name}",
            uid=name,
            group=group,
            cpu=cpu,
            annotations={"volcano.sh/preemptable": "true"},
            **self.pod_specs[group](number),
        )
        self.put("pods", self.pods[name])

    def drop(self, group: str) -> None:
        for name in [name for name in self.pods if name.startswith(f"{group}-")]:
            del self.pods[name]
            self.delete("pods", f"ns/{name}", name)
        del self.groups[group]
        self.delete("podgroups", f"ns/{group}", group)

    # --- steps ---------------------------------------------------------------------------------

    def step(self, step: tuple[Any, ...]) -> tuple[Decision, Decision]:
        what, *rest = step
        running = sorted(
            {n.partition("-")[0] for n, p in self.pods.items() if p["spec"]["nodeName"]}
        )
        waiting = sorted(self.groups.keys() - set(running))
        if what == "submit":
            self.submit(*rest)
        elif what == "end" and running:
            self.drop(running[rest[0] % len(running)])
        elif what == "drop" and waiting:
            self.drop(waiting[rest[0] % len(waiting)])
        elif what == "rest":
            self.now += rest[0]
        elif what == "node":
            self.node(*rest)
        elif what == "limit":
            self.limit(*rest)
        elif what == "usage":
            self.use(*rest)
        return self.decide()

    def decide(self) -> tuple[Decision, Decision]:
        self.cycle += 1
        self.now += 1.0
        skipping, visiting = (
            scheduler.decide(self.config, now=self.now, cycle=self.cycle, token=1)
            for scheduler in self.schedulers
        )
        self.unschedulable += bool(skipping.unschedulable)
        for at, decision in enumerate((skipping, visiting)):
            if not decision.is_empty:
                self.schedulers[at].assume_statuses(decision.plan)
            self.show(at, decision)
        self.carry_out(visiting)
        return skipping, visiting

    def show(self, at: int, decision: Decision) -> None:
        for wish in decision.statuses:
            name = wish.message.key.partition("/")[2]
            if isinstance(wish.message, m.DesiredPodGroup) and name in self.groups:
                status = {"phase": wish.message.phase, "running": wish.message.running}
                status["conditions"] = [
                    {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
                    for c in wish.message.conditions
                ]
                self.put("podgroups", {**self.groups[name], "status": status}, to=at)

    def carry_out(self, decision: Decision) -> None:
        for command in decision.commands:
            if isinstance(command, m.BindGang):
                for bind in command.binds:
                    pod = self.pods[bind.uid]
                    pod["spec"]["nodeName"], pod["status"]["phase"] = bind.node, "Running"
                    self.put("pods", pod)
            else:
                self.evict(command)
        for group in decision.plan.podgroups:
            name = group.key.partition("/")[2]
            if group.phase == "Inqueue" and group.was != "Inqueue" and f"{name}-0" not in self.pods:
                self.make_pods(name)

    def evict(self, command: m.Evict) -> None:
        for victim in command.victims:
            del self.pods[victim.uid]
            self.delete("pods", victim.pod, victim.uid)


def check(skipping: Decision, visiting: Decision) -> None:
    """Check that two schedulers, one with an unschedulable pool, decide and report equally."""
    assert skipping.commands == visiting.commands
    assert phases(skipping) == phases(visiting)
    assert skipping.plan.queues == visiting.plan.queues
    assert not visiting.unschedulable
    reported = visiting.full_plan.explanations
    unlike = [why for why in skipping.full_plan.explanations if why not in reported]
    assert unlike == []


def phases(decision: Decision) -> dict[str, str]:
    return {g.key: g.phase for g in decision.plan.podgroups if g.phase != g.was}
