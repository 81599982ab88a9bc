"""The unschedulable pool changes no decision in contended clusters where actions evict.

Gangs wait for more than nodes have room for, while less important jobs, and queues that have more
than they deserve, begin to run, grow, shrink and end. Victims take their time to go; pods for which
they went are nominated.
"""

from typing import Any, NamedTuple

from hypothesis import given, settings, target
from hypothesis import strategies as st
from typing_extensions import override

from services.scheduler.config import SchedulerConfig
from shared.contracts import messages as m
from tests.property.two_schedulers import Histories, check
from tests.support.laws import configured, count_hits, needs_hits

ACTIONS = (
    "allocate, preempt",
    "allocate, reclaim",
    "allocate, preempt, reclaim",
    "allocate, backfill, reclaim, preempt",
    "enqueue, allocate, preempt, reclaim, backfill",
    "allocate, gangpreempt",
    "allocate, gangreclaim",
    "allocate, gangreclaim, preempt",
)
QUEUES = ("a", "b", "c")


def configuration(
    actions: str, gang: str, drf: str, shares: str, *, aware: str, volcano: str
) -> SchedulerConfig:
    """Return a configuration with flags of plugins, and where preempt looks at all nodes."""
    return configured(f"""
actions: "{actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang{gang}}}, {{name: conformance}}]
- plugins: [{{name: overcommit}}, {{name: drf{drf}}}, {{name: predicates}}, {{name: {shares}}}]
volcanoEvictions: {volcano}
configurations:
- {{name: preempt, arguments: {{enableTopologyAwarePreemption: {aware}}}}}
""")


configurations = st.builds(
    configuration,
    st.sampled_from(ACTIONS),
    st.sampled_from(
        [
            ", enablePreemptable: false",
            ", enablePreemptable: false, enableReclaimable: false",
            "",
        ]
    ),
    st.sampled_from([", enablePreemptable: false", ", enablePreemptable: false", ""]),
    st.sampled_from(["capacity", "proportion"]),
    aware=st.sampled_from(["false", "false", "true"]),
    volcano=st.sampled_from(["false", "true"]),
)


class Gang(NamedTuple):
    """A job to submit; or one that runs where there is room, when a history begins."""

    queue: str
    cpus: list[str]
    rank: int
    spare: int
    never: int
    """So many of its pods, the last ones, may take from no other; of the others each has the
    priority of its rank in the job."""
    zone: str

    def pod(self, number: int) -> dict[str, Any]:
        """Return what a pod's spec says beside its amounts."""
        spec: dict[str, Any] = {"priority": self.rank + number % 2}
        if number >= len(self.cpus) - self.never:
            spec["preemptionPolicy"] = "Never"
        if self.zone == "tolerates":
            spec["tolerations"] = [{"key": "taken", "operator": "Exists"}]
        elif self.zone:
            spec["nodeSelector"] = {"zone": self.zone}
        return spec


class Share(NamedTuple):
    """What a queue may have."""

    deserved: str
    capability: str
    weight: int
    reclaimable: bool


class ContendedHistories(Histories):
    """Histories with victims that linger, on nodes of zones and with taints."""

    def __init__(self, config: SchedulerConfig, shares: list[Share], running: list[Gang]) -> None:
        self.shares = dict(zip(QUEUES, shares, strict=True))
        self.evicted = 0
        self.lingering: list[str] = []
        super().__init__(config)
        self.put("priorityclasses", {"metadata": {"name": "p5", "uid": "p5"}, "value": 5})
        self.limit("c", "")
        for gang in running:
            self.run(gang)

    @property
    def unschedulable_gangs(self) -> int:
        """Return how many gangs with pods the first scheduler leaves out."""
        return len(self.schedulers[0].cluster_state.jobs.unschedulable.at_allocate)

    @override
    def limit(self, name: str, cpu: str) -> None:
        if cpu:
            self.shares[name] = self.shares[name]._replace(capability=cpu)
        self.share(name, self.shares[name])

    def share(self, name: str, share: Share) -> None:
        spec = {
            "weight": share.weight,
            "reclaimable": share.reclaimable,
            "capability": {"cpu": share.capability},
            "deserved": {"cpu": share.deserved, "memory": "4Gi", "pods": "20"},
        }
        meta = {"name": name, "uid": name}
        self.put("queues", {"metadata": meta, "spec": spec, "status": {"state": "Open"}})

    @override
    def node(self, number: int, cpu: str) -> None:
        if cpu == "0":
            super().node(number, cpu)
            return
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
        labels = {"zone": "xy"[number % 2]}
        taints = [{"key": "taken", "effect": "NoSchedule"}] if number == 2 else []
        meta = {"name": f"n{number}", "uid": f"n{number}", "labels": labels}
        status = {"allocatable": amounts}
        self.put("nodes", {"metadata": meta, "spec": {"taints": taints}, "status": status})

    def run(self, gang: Gang) -> None:
        """Have a job run as far as the first nodes have room."""
        name = self.submit(gang.queue, gang.cpus, gang.rank, least=self.least(gang), pod=gang.pod)
        if f"{name}-0" not in self.pods:
            self.make_pods(name)
        group = self.groups[name]
        self.groups[name] = {**group, "status": {"phase": "Running"}}
        self.put("podgroups", self.groups[name])
        for number, cpu in enumerate(gang.cpus):
            node = next((n for n in range(3) if self.used(n) + int(cpu) <= 4), None)
            if node is not None:
                self.bind(f"{name}-{number}", f"n{node}")

    def end(self, of: int) -> None:
        """End one of the jobs that run, if any does."""
        running = sorted(
            {n.partition("-")[0] for n, p in self.pods.items() if p["spec"]["nodeName"]}
        )
        if running:
            self.drop(running[of % len(running)])

    def least(self, gang: Gang) -> int:
        return max(1, len(gang.cpus) - gang.spare)

    def used(self, node: int) -> int:
        return sum(
            int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            for pod in self.pods.values()
            if pod["spec"]["nodeName"] == f"n{node}"
        )

    def bind(self, name: str, node: str) -> None:
        pod = self.pods[name]
        pod["spec"]["nodeName"], pod["status"]["phase"] = node, "Running"
        self.put("pods", pod)

    @override
    def evict(self, command: m.Evict) -> None:
        self.evicted += 1
        for victim in command.victims:
            pod = self.pods[victim.uid]
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.put("pods", pod)
            self.lingering.append(victim.uid)
        preemptor = command.preemptor
        if preemptor is not None and preemptor.uid in self.pods:
            self.pods[preemptor.uid]["status"]["nominatedNodeName"] = preemptor.node
            self.put("pods", self.pods[preemptor.uid])

    @override
    def step(self, step: tuple[Any, ...]) -> Any:
        what, *rest = step
        if what == "gang":
            (gang,) = rest
            least = self.least(gang)
            self.submit(gang.queue, gang.cpus, gang.rank, least=least, pod=gang.pod)
        elif what == "swap":
            of, gang = rest
            self.end(of)
            self.run(gang)
        elif what == "gone":
            for name in self.lingering:
                if name in self.pods:
                    del self.pods[name]
                    self.delete("pods", f"ns/{name}", name)
            self.lingering = []
        elif what == "grow" and self.groups:
            of, cpu = rest
            group = sorted(self.groups)[of % len(self.groups)]
            if f"{group}-0" in self.pods:
                self.sizes[group] = [*self.sizes[group], cpu]
                self.make_pod(group, len(self.sizes[group]) - 1, cpu)
        elif what == "share":
            name, share = rest
            self.shares[name] = share
            self.share(name, share)
        elif what == "rank":
            value = {"metadata": {"name": "p5", "uid": "p5"}, "value": rest[0]}
            self.put("priorityclasses", value)
        return super().step(step)


queues = st.sampled_from(("a", "a", "b", "c"))
cpus = st.sampled_from(["1", "2", "2", "3"])
gangs = st.builds(
    Gang,
    queues,
    st.lists(cpus, min_size=1, max_size=3),
    st.sampled_from([0, 0, 5]),
    st.sampled_from([0, 0, 1, 2]),
    st.sampled_from([0, 0, 0, 1, 3]),
    st.sampled_from(["", "", "", "tolerates", "x"]),
)
large = st.builds(
    lambda gang, sizes, rank: gang._replace(cpus=sizes, rank=rank, spare=0),
    gangs,
    st.lists(st.sampled_from(["2", "3"]), min_size=2, max_size=3),
    st.sampled_from([0, 5, 9]),
)
shares = st.builds(
    Share,
    st.sampled_from(["1", "4", "8"]),
    st.sampled_from(["4", "8", "12", "12"]),
    st.sampled_from([1, 3]),
    st.sampled_from([True, True, True, False]),
)
steps = st.one_of(
    st.tuples(st.just("gang"), large),
    st.tuples(st.just("gang"), gangs),
    st.tuples(st.just("swap"), st.integers(0, 5), gangs),
    st.tuples(st.just("swap"), st.integers(0, 5), gangs),
    st.tuples(st.just("gone")),
    st.tuples(st.just("grow"), st.integers(0, 9), cpus),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("share"), queues, shares),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("rest"), st.sampled_from([0.0, 0.0, 0.0, 40.0])),
    st.tuples(st.just("node"), st.integers(0, 3), st.sampled_from(["0", "2", "4", "5"])),
    st.tuples(st.just("share"), queues, shares),
    st.tuples(st.just("rank"), st.sampled_from([-1, 5, 10])),
)
histories = st.lists(steps, min_size=6, max_size=24)


@needs_hits(at_least=2)
@settings(max_examples=30, deadline=None)
@given(
    configurations,
    st.lists(shares, min_size=3, max_size=3),
    st.lists(gangs, min_size=1, max_size=6),
    st.lists(large, min_size=1, max_size=4),
    histories,
)
def test_a_scheduler_with_the_pool_of_gangs_evicts_as_one_that_visits_all_of_them(
    config, shares, running, waiting, history
):
    lived = ContendedHistories(config, shares, running)
    contended = 0
    for step in [("gang", gang) for gang in waiting] + [("rest", 0.0)] * 2 + history:
        unschedulable, evicted = lived.unschedulable_gangs, lived.evicted
        check(*lived.step(step))
        contended += unschedulable > 0 and lived.evicted > evicted
    target(float(lived.evicted), label="evictions")
    count_hits([None] * contended)
