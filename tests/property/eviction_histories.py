"""A small cluster over time, for laws about evictions: owners make up for the pods they lose.

Each step of time is one change from outside, or none, and cycles of the scheduler until they are
quiet. Evicted pods take their grace period to leave. A Job and a StatefulSet make a pod of the same
name once the old one has gone, a Deployment makes another one at once.
"""

from collections import Counter
from itertools import combinations
from typing import Any, NamedTuple

from pumice.testing import Cluster
from services.scheduler.engine.plan import Eviction, Plan
from shared.api import kinds

JOB, DEPLOYMENT, STATEFUL_SET = "Job", "Deployment", "StatefulSet"
OWNERS = (JOB, DEPLOYMENT, STATEFUL_SET)
CYCLES_OF_A_STEP = 8
_EVICTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]


class Group(NamedTuple):
    """A PodGroup that comes from outside, and the owner of its pods."""

    name: str
    owner: str
    queue: str
    priority: str
    least: int
    cpus: tuple[int, ...]
    """CPUs of each pod."""
    grace: int
    """Steps that a pod takes to leave."""


class Replica:
    """A pod, and the place in its group that it fills."""

    def __init__(self, group: Group, index: int, number: int) -> None:
        self.group, self.index, self.uid = group, index, f"{group.name}-{index}-{number}"
        self.name = self.uid if group.owner == DEPLOYMENT else f"{group.name}-{index}"
        self.node = self.nominated = ""
        self.leaves_at: int | None = None
        self.victim_of = ""
        """Uid of the pod for which it was evicted."""
        self.replaces: Replica | None = None

    @property
    def cpu(self) -> int:
        return self.group.cpus[self.index]

    @property
    def slot(self) -> tuple[str, int]:
        return self.group.name, self.index

    @property
    def stays(self) -> bool:
        """Whether it has a node and is not on its way out."""
        return bool(self.node) and self.leaves_at is None


def _fit(cpus: list[int], room: list[int]) -> bool:
    """Tell whether pods of these sizes fit on nodes of this room together."""
    if not cpus:
        return True
    return any(
        left >= cpus[0] and _fit(cpus[1:], [*room[:at], left - cpus[0], *room[at + 1 :]])
        for at, left in enumerate(room)
    )


class History:
    """The cluster, its owners and its kubelets; notes what breaks a law."""

    def __init__(self, conf: str, nodes: dict[str, int], queues: dict[str, dict[str, Any]]) -> None:
        self._conf, self._nodes, self._queues = conf, nodes, queues
        self._number = self.now = 0
        self.groups: dict[str, Group] = {}
        self.pods: dict[str, Replica] = {}
        self.changes = 0
        self.evictions: list[Eviction] = []
        self.broken: list[str] = []
        self._since_change: Counter[tuple[str, int]] = Counter()
        self._for: dict[str, str] = {}
        """Uid of a pod for which others were evicted, until it has started → its node."""
        self.started: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """Begin with a new scheduler, which knows what objects show and nothing else."""
        self.cluster = Cluster(self._conf, queue=False)
        for name, cpu in self._nodes.items():
            self.cluster.node(name, cpu=str(cpu))
        for name, spec in self._queues.items():
            self.cluster.queue(name, **spec)
        for name, value in (("low", 1), ("mid", 10), ("high", 100)):
            meta = {"name": name, "uid": name}
            self.cluster.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": value})
        for group in self.groups.values():
            self._show_group(group)
        for pod in self.pods.values():
            self._show(pod)

    # --- from outside --------------------------------------------------------------------------

    def arrive(self, group: Group) -> None:
        """A group comes with its pods."""
        self._change()
        self.groups[group.name] = group
        self._show_group(group)
        for index in range(len(group.cpus)):
            self._make(group, index)

    def end(self, name: str) -> None:
        """A group is deleted with its pods, or has completed."""
        self._change()
        del self.groups[name]
        for pod in [pod for pod in self.pods.values() if pod.group.name == name]:
            self._remove(pod)
        self.cluster.delete(kinds.PODGROUP, f"ns/{name}", f"uid-ns/{name}")

    def _change(self) -> None:
        self.changes += 1
        self._since_change.clear()

    # --- time ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Let pods that leave go, and run cycles until nothing is decided any more."""
        self.now += 1
        for pod in list(self.pods.values()):
            if pod.leaves_at is not None and pod.leaves_at <= self.now:
                self._remove(pod)
                if pod.group.owner != DEPLOYMENT:
                    self._replace(pod)
        for _ in range(CYCLES_OF_A_STEP):
            plan = self.cluster.step(now=float(self.now))
            if not (plan.binds or plan.evictions):
                return
            self._carry_out(plan)

    def rest(self, steps: int) -> int:
        """Return how many of the last steps evicted nobody while nothing changed outside."""
        quiet = 0
        for _ in range(steps):
            known = len(self.evictions)
            self.step()
            quiet = quiet + 1 if len(self.evictions) == known else 0
        return quiet

    def _carry_out(self, plan: Plan) -> None:
        binds = {bind.uid: bind.node for gang in plan.binds for bind in gang.binds}
        for uid, node in binds.items():
            pod = self.pods[uid]
            pod.node, pod.nominated = node, ""
            self.started.add(uid)
            self._for.pop(uid, None)
        self._check_turns([self.pods[uid] for uid in binds])
        for uid in binds:
            self._show(self.pods[uid])
        for nomination in plan.nominations:
            self.pods[nomination.uid].nominated = nomination.node
            self._for[nomination.uid] = nomination.node
            self._show(self.pods[nomination.uid])
        for eviction in plan.evictions:
            self._evict(eviction)
        self._check_rooms()

    def _evict(self, eviction: Eviction) -> None:
        pod = self.pods[eviction.uid]
        self.evictions.append(eviction)
        self._since_change[pod.slot] += 1
        if self._since_change[pod.slot] > 1:
            self.broken.append(f"{pod.slot} is evicted twice and nothing changed outside")
        pod.leaves_at = self.now + pod.group.grace
        pod.victim_of = eviction.preemptor_uid
        self._show(pod)
        if pod.group.owner == DEPLOYMENT:
            self._replace(pod)

    def _replace(self, pod: Replica) -> None:
        if pod.group.name in self.groups:
            self._make(pod.group, pod.index).replaces = pod

    # --- laws ----------------------------------------------------------------------------------

    def _check_turns(self, bound: list[Replica]) -> None:
        """What was evicted takes no room with which the claimant could start at once.

        While the claimant waits for its victims to leave, their owners may use idle room that is
        of no use to it: too small for its pod, or no help to a gang that lacks others, too.
        """
        back: dict[str, list[Replica]] = {}
        for pod in bound:
            if pod.replaces and pod.replaces.victim_of in self._for:
                back.setdefault(pod.replaces.victim_of, []).append(pod)
        self.broken += [
            f"{', '.join(pod.uid for pod in pods)} took the room with which {uid} could start"
            for uid, pods in back.items()
            if self._could_start(self.pods[uid], pods)
        ]

    def _could_start(self, claimant: Replica, without: list[Replica]) -> bool:
        """Tell whether a pod and what its gang lacks fit into what is idle without others."""
        gang = [pod for pod in self.pods.values() if pod.group is claimant.group]
        lacking = claimant.group.least - sum(pod.stays for pod in gang)
        others = [pod for pod in gang if not pod.node and pod is not claimant]
        room = self._usable(claimant.group, without)
        return any(
            _fit([claimant.cpu, *(pod.cpu for pod in beside)], room)
            for beside in combinations(others, max(0, lacking - 1))
        )

    def _usable(self, group: Group, without: list[Replica]) -> list[int]:
        """Return the CPUs of each node that are idle and claimed by no other group."""
        idle, kept = dict(self._nodes), dict(self._nodes)
        for pod in self.pods.values():
            if pod.node and pod not in without:
                idle[pod.node] -= pod.cpu
                kept[pod.node] -= pod.cpu if pod.stays else 0
        for uid, node in self._for.items():
            kept[node] -= self.pods[uid].cpu if self.pods[uid].group is not group else 0
        return [min(idle[name], kept[name]) for name in self._nodes]

    def _check_rooms(self) -> None:
        """Nodes and queues keep room for all pods for which others were evicted.

        So a queue is beyond its capability by its terminating pods at most.
        """
        self._check_queues()
        room = dict(self._nodes)
        for pod in self.pods.values():
            if pod.stays:
                room[pod.node] -= pod.cpu
        for uid, node in self._for.items():
            room[node] -= self.pods[uid].cpu
        self.broken += [
            f"{name} has {left} CPUs when all claims on it are met"
            for name, left in room.items()
            if left < 0
        ]

    def _check_queues(self) -> None:
        held: Counter[str] = Counter()
        for pod in self.pods.values():
            if pod.stays or pod.uid in self._for:
                held[pod.group.queue] += pod.cpu
        for name, spec in self._queues.items():
            if "capability" in spec and held[name] > int(spec["capability"]["cpu"]):
                self.broken.append(f"queue {name} holds {held[name]} CPUs with all claims met")

    def waiting_claimants(self) -> list[str]:
        """Return the pods for which others were evicted and that have not started."""
        return sorted(self._for)

    # --- objects -------------------------------------------------------------------------------

    def _make(self, group: Group, index: int) -> Replica:
        self._number += 1
        pod = Replica(group, index, self._number)
        self.pods[pod.uid] = pod
        self._show(pod)
        return pod

    def _remove(self, pod: Replica) -> None:
        if self.pods.pop(pod.uid, None) is not None:
            self._for.pop(pod.uid, None)
            self.cluster.delete(kinds.POD, f"ns/{pod.name}", pod.uid)

    def _show_group(self, group: Group) -> None:
        self.cluster.group(
            group.name,
            queue=group.queue,
            min_member=group.least,
            phase="Inqueue",
            priorityClassName=group.priority,
        )

    def _show(self, pod: Replica) -> None:
        status: dict[str, Any] = {}
        if pod.nominated:
            status["nominatedNodeName"] = pod.nominated
        if pod.leaves_at is not None:
            status["conditions"] = _EVICTED
        self.cluster.pod(
            pod.name,
            pod.group.name,
            cpu=str(pod.cpu),
            node=pod.node,
            uid=pod.uid,
            deleting=pod.leaves_at is not None,
            status=status,
            priority={"low": 1, "mid": 10, "high": 100}[pod.group.priority],
        )
