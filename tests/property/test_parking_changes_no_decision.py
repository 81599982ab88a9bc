"""Parked jobs change no decision: a worker that parks decides what one decides that never does.

Both live through the same history; each sees the statuses that it wanted itself. What the first one
says of a waiting job it also says in the words of the second.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.config import DEFAULT_TEXT
from services.scheduler.decide import configure
from services.scheduler.worker import Decision, Worker
from shared.contracts import messages as m
from tests.support.hits import meet, met_in

_TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}%s]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates}, \
{name: %s}, {name: nodeorder}, {name: binpack}]
"""
_RESERVING = (
    ", {name: reservation, arguments: {reservation.order: %s, reservation.defaultDuration: 9s}}"
)
CONFIGURATIONS = [
    configure(DEFAULT_TEXT),
    configure('actions: "allocate, backfill"' + _TIERS % ("", "proportion")),
    configure('actions: "enqueue, allocate, backfill"' + _TIERS % ("", "capacity")),
    configure(
        'actions: "enqueue, allocate, preempt, reclaim, backfill"' + _TIERS % ("", "capacity")
    ),
    *(
        configure(
            'actions: "enqueue, allocate, backfill"' + _TIERS % (_RESERVING % order, "capacity")
        )
        for order in ("backfill", "strict")
    ),
]
NEVER = 10**9

queues = st.sampled_from(["a", "b"])
sizes = st.sampled_from(["1", "1", "2", "3"])
steps = st.one_of(
    st.tuples(
        st.just("submit"),
        queues,
        st.lists(sizes, min_size=1, max_size=3),
        st.sampled_from([0, 0, 0, 9]),
    ),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("rest"), st.sampled_from([1.0, 40.0])),
    st.tuples(st.just("node"), st.integers(0, 3), st.sampled_from(["0", "2", "4"])),
    st.tuples(st.just("limit"), queues, st.sampled_from(["2", "4", "8"])),
)


class Histories:
    """The objects, and two workers that hear of them."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.workers = [
            Worker(scheduler_names=("volcano",), seed=0, gang_message=9, settle_s=0.0, few=few)
            for few in (0, NEVER)
        ]
        self.groups: dict[str, dict[str, Any]] = {}
        self.shown: list[dict[str, dict[str, Any]]] = [{}, {}]
        self.pods: dict[str, dict[str, Any]] = {}
        self.sizes: dict[str, list[str]] = {}
        self.now = 0.0
        self.cycle = 0
        self.parked = 0
        for name, value in (("p0", 0), ("p9", 9)):
            self.put("priorityclasses", {"metadata": {"name": name, "uid": name}, "value": value})
        for name in ("a", "b"):
            self.limit(name, "8")
        for number in range(3):
            self.node(number, "4")

    # --- objects -------------------------------------------------------------------------------

    def put(self, kind: str, body: dict[str, Any], to: int | None = None) -> None:
        for worker in self.workers if to is None else [self.workers[to]]:
            meta = body["metadata"]
            key = f"ns/{meta['name']}" if "namespace" in meta else meta["name"]
            raw = msgspec.Raw(msgspec.json.encode(body))
            assert (
                worker.fold([m.Fact(kind=kind, key=key, uid=meta["uid"], rv="1", body=raw)]) == []
            )

    def delete(self, kind: str, key: str, uid: str) -> None:
        for worker in self.workers:
            gone = m.Fact(kind=kind, key=key, uid=uid, rv="2", op=m.Op.DELETE)
            assert worker.fold([gone]) == []

    def limit(self, name: str, cpu: str) -> None:
        spec = {"weight": 1, "capability": {"cpu": cpu}, "deserved": {"cpu": "4"}}
        meta: dict[str, Any] = {"name": name, "uid": name}
        if name == "b":  # an order of its own, where the configuration has orders
            meta["annotations"] = {"pumice.dev/order": "best-effort"}
        self.put("queues", {"metadata": meta, "spec": spec, "status": {"state": "Open"}})

    def node(self, number: int, cpu: str) -> None:
        name = f"n{number}"
        if cpu == "0":
            self.delete("nodes", name, name)
            return
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
        meta = {"name": name, "uid": name}
        self.put("nodes", {"metadata": meta, "status": {"allocatable": amounts}})

    def submit(self, queue: str, cpus: list[str], rank: int) -> None:
        name = f"g{self.cycle}"
        meta = {"name": name, "namespace": "ns", "uid": name}
        meta["creationTimestamp"] = f"2026-01-01T00:{self.cycle // 60:02}:{self.cycle % 60:02}Z"
        spec = {
            "minMember": len(cpus),
            "queue": queue,
            "priorityClassName": f"p{rank}",
            "minResources": {"cpu": str(sum(map(int, cpus)))},
        }
        self.sizes[name] = cpus
        self.groups[name] = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
        self.put("podgroups", self.groups[name])
        if "enqueue" not in self.config.actions:
            self.make_pods(name)

    def make_pods(self, group: str) -> None:
        for number, cpu in enumerate(self.sizes[group]):
            name = f"{group}-{number}"
            meta = {"name": name, "namespace": "ns", "uid": name}
            meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
            meta["annotations"] = {
                "scheduling.k8s.io/group-name": group,
                "volcano.sh/preemptable": "true",
            }
            container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
            spec = {"schedulerName": "volcano", "nodeName": "", "containers": [container]}
            self.pods[name] = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
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
        return self.decide()

    def decide(self) -> tuple[Decision, Decision]:
        self.cycle += 1
        self.now += 1.0
        parking, visiting = (
            worker.decide(self.config, now=self.now, cycle=self.cycle, token=1)
            for worker in self.workers
        )
        self.parked += bool(parking.parked)
        for at, decision in enumerate((parking, visiting)):
            if not decision.says_nothing:
                self.workers[at].adopt(decision.plan)
            self.show(at, decision)
        self.carry_out(visiting)
        return parking, visiting

    def show(self, at: int, decision: Decision) -> None:
        for wish in decision.statuses:
            name = wish.wanted.key.partition("/")[2]
            if isinstance(wish.wanted, m.DesiredPodGroup) and name in self.groups:
                status = {"phase": wish.wanted.phase, "running": wish.wanted.running}
                status["conditions"] = [
                    {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
                    for c in wish.wanted.conditions
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
                for victim in command.victims:
                    del self.pods[victim.uid]
                    self.delete("pods", victim.pod, victim.uid)
        for group in decision.plan.podgroups:
            name = group.key.partition("/")[2]
            if group.phase == "Inqueue" and group.was != "Inqueue" and f"{name}-0" not in self.pods:
                self.make_pods(name)


def phases(decision: Decision) -> dict[str, str]:
    return {g.key: g.phase for g in decision.plan.podgroups if g.phase != g.was}


@met_in(at_least=40)
@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CONFIGURATIONS), st.lists(steps, min_size=10, max_size=50))
def test_a_worker_that_parks_jobs_decides_as_one_that_visits_all_of_them(config, history):
    histories = Histories(config)
    for step in history:
        parking, visiting = histories.step(step)
        assert parking.commands == visiting.commands
        assert phases(parking) == phases(visiting)
        assert parking.plan.queues == visiting.plan.queues
        assert not visiting.parked
        unlike = [
            why for why in parking.whole.explanations if why not in visiting.whole.explanations
        ]
        assert unlike == []
    meet([None] * histories.parked)
