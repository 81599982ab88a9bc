"""Jobs in virtual time: the engine decides at each arrival and each end, as in a cluster.

A job enters its queue first; its pods are made then, and placed in the cycle that follows. The
facts are those that the API server would show. A job holds its resources for as long as it was
recorded to. Evictions are not replayed. Decayed usage is published once a minute, as accounting
does, so that the plugin `fairshare` has it.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from services.scheduler.config import DEFAULT_TEXT
from services.scheduler.decide import configure, open_session, run_actions
from services.scheduler.engine.plan import GangBinds
from services.scheduler.engine.resources.dimensions import per_unit, quantity
from services.scheduler.engine.session.activation import activate, refused_jobs
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import PLUGINS, STATES
from services.scheduler.policy.plugins.fairshare import FairShare
from services.scheduler.policy.states.past_usage import PastUsage
from services.scheduler.policy.unschedulable_policy import unschedulable_policy
from shared.api import keys, kinds
from shared.api import time as times
from shared.api.kinds import Kind
from shared.contracts.usage import QueueUsage
from shared.model.decayed_usage import DecayedTotal
from shared.model.resources import PODS

EPOCH: Final = 1_767_225_600.0
"""Unix seconds at which replays begin."""
HALF_LIFE_S: Final = 7 * 86_400.0
_PUBLISH_S: Final = 60.0

Amounts = dict[str, int]
"""Resource → amount; memory in bytes, all others in thousandths."""


class ReplayedJob(NamedTuple):
    """A job as it was recorded."""

    name: str
    at: float
    """When it was submitted, in seconds since the beginning."""
    seconds: float
    """How long it ran."""
    pods: int
    requests: Amounts
    """Of each pod."""
    expected_s: float = 0.0
    """Run time that its user states; 0 for none."""
    user: str = ""
    queue: str = "default"


def _ignored(_: str) -> None:
    """Do nothing."""


class DecayedUsage:
    """What the users of each queue have used in a replay."""

    def __init__(self, half_life_s: float) -> None:
        self.half_life_s = half_life_s
        self._totals: dict[tuple[str, str, str], DecayedTotal] = {}

    def count(self, job: ReplayedJob, sign: int, now: float) -> None:
        """Count a job that starts (1) or ends (-1)."""
        for name, amount in job.requests.items():
            key = (job.queue, job.user, name)
            total = self._totals.setdefault(key, DecayedTotal(self.half_life_s, at=now))
            total.start(sign * job.pods * amount / per_unit(name), now)

    def of(self, queue: str, user: str, resource: str, now: float) -> float:
        """Return a user's usage in amount·seconds, decayed to a time."""
        total = self._totals.get((queue, user, resource))
        return 0.0 if total is None else total.at(now)

    def messages(self, now: float) -> dict[str, QueueUsage]:
        """Return queue → message, as accounting publishes it."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for (queue, user, name), total in self._totals.items():
            found.setdefault(queue, {}).setdefault(user, {})[name] = total.at(now)
        return {
            queue: QueueUsage(queue=queue, at=now, half_life_s=self.half_life_s, users=users)
            for queue, users in found.items()
        }


class Replay:
    """One run of recorded jobs on some nodes."""

    def __init__(
        self,
        jobs: Sequence[ReplayedJob],
        objects: Iterable[tuple[Kind, dict[str, Any]]],
        configuration: str = DEFAULT_TEXT,
        *,
        half_life_s: float = HALF_LIFE_S,
    ) -> None:
        """Take jobs in the order of submission, and nodes and queues as JSON of the API."""
        self.config = configure(configuration)
        self.cluster_state = ClusterState(("volcano",), STATES)
        self.now = EPOCH
        self.jobs = {f"ns/{job.name}": job for job in jobs}
        self.waits: dict[str, float] = {}
        """Job → how long it waited, once it has started."""
        self.ended: list[tuple[str, float]] = []
        """Jobs that have ended, and how long they ran."""
        self.usage = DecayedUsage(half_life_s)
        self._published = -math.inf
        options = [option.name for tier in self.config.tiers for option in tier.plugins]
        self._is_fair = FairShare.name in options
        self._unschedulable_policy = unschedulable_policy(self.config, PLUGINS)._asdict()
        self._ends: list[tuple[float, str]] = []
        for kind, document in objects:
            self._put(kind, document)

    def run(
        self,
        on_submitted: Callable[[str], None] = _ignored,
        on_waiting: Callable[[str], None] = _ignored,
        observed: Collection[str] = (),
    ) -> None:
        """Submit the jobs in virtual time until all that can start have ended.

        Args:
            on_submitted: Called with the key of each job before its first cycle.
            on_waiting: Called with the key of each job in `observed` that still waits after it.
            observed: Keys of jobs, `ns/NAME`.
        """
        for job in self.jobs.values():
            self._pass_to(EPOCH + job.at)
            self._submit(job)
            key = f"ns/{job.name}"
            on_submitted(key)
            self._decide()
            if key in observed and key not in self.waits:
                on_waiting(key)
        self._pass_to(math.inf)

    def _pass_to(self, when: float) -> None:
        """Let jobs end that end by a time, and set the clock to it."""
        while self._ends and self._ends[0][0] <= when:
            self.now, _ = self._ends[0]
            while self._ends and self._ends[0][0] <= self.now:
                self._end(heapq.heappop(self._ends)[1])
            self._decide()
        if when < math.inf:
            self.now = when

    # --- facts -------------------------------------------------------------------------------

    def _put(self, kind: Kind, document: dict[str, Any]) -> None:
        view: Any = msgspec.convert(document, kind.type)
        self.cluster_state.put(kind.token, view.metadata.key, view.metadata.uid, view)

    def _group(self, job: ReplayedJob, phase: str) -> None:
        created = times.format_seconds(EPOCH + job.at)
        minimum = {name: job.pods * amount for name, amount in job.requests.items()}
        spec = {"minMember": job.pods, "queue": job.queue, "minResources": _listed(minimum)}
        expected = {keys.EXPECTED_DURATION: f"{job.expected_s:.0f}"} if job.expected_s else {}
        annotations = expected | ({keys.USER: job.user} if job.user else {})
        meta = {**_named(job.name, "ns"), "creationTimestamp": created, "annotations": annotations}
        document = {"metadata": meta, "spec": spec, "status": {"phase": phase}}
        self._put(kinds.PODGROUP, document)

    def _pod(self, job: ReplayedJob, number: int, phase: str, node: str = "") -> None:
        meta = _named(f"{job.name}-{number}", "ns")
        started = {"startTime": times.format_seconds(self.now)} if node else {}
        created = times.format_seconds(EPOCH + job.at)
        resources = {"requests": _listed(job.requests)}
        self._put(
            kinds.POD,
            {
                "metadata": {
                    **meta,
                    "creationTimestamp": created,
                    "annotations": {keys.GROUP_NAME: job.name},
                },
                "spec": {
                    "schedulerName": "volcano",
                    "nodeName": node,
                    "containers": [{"name": "main", "resources": resources}],
                },
                "status": {"phase": phase, **started},
            },
        )

    def _submit(self, job: ReplayedJob) -> None:
        self._group(job, "Pending")

    def _end(self, key: str) -> None:
        """Delete the pods and the PodGroup of a job that has ended."""
        job = self.jobs[key]
        for number in range(job.pods):
            pod = f"{key}-{number}"
            self.cluster_state.delete(kinds.POD.token, pod, f"uid-{pod}")
        self.cluster_state.delete(kinds.PODGROUP.token, key, f"uid-{key}")
        self.ended.append((key, job.seconds))
        self.usage.count(job, -1, self.now)

    # --- decisions ---------------------------------------------------------------------------

    def _decide(self) -> None:
        """Run cycles until one admits no job."""
        if self._is_fair and self.now >= self._published + _PUBLISH_S:
            self._published = self.now
            self.cluster_state.store(PastUsage).replace(self.usage.messages(self.now))
            self.cluster_state.jobs.activate_all()
        while self._cycle():
            pass

    def _cycle(self) -> bool:
        """Run a cycle and do what binder and controller do; return whether jobs got pods."""
        session = open_session(self.cluster_state, self.config, now=self.now)
        try:
            activate(session)
            admitted = {job.key for job in session.jobs if not job.is_pending}
            run_actions(session, self.config)
            entered = [j.key for j in session.jobs if j.key not in admitted and not j.is_pending]
            binds = session.binds
            refused = refused_jobs(session, **self._unschedulable_policy)
        finally:
            session.close()
        for job, order, demand in refused:
            self.cluster_state.jobs.add_unschedulable(job, order, demand, now=self.now)
        for key in entered:
            self._admit(self.jobs[key])
        for gang in binds:
            self._start(self.jobs[gang.job], gang)
        return bool(entered)

    def _admit(self, job: ReplayedJob) -> None:
        self._group(job, "Inqueue")
        for number in range(job.pods):
            self._pod(job, number, "Pending")

    def _start(self, job: ReplayedJob, gang: GangBinds) -> None:
        for bind in gang.binds:
            self._pod(job, int(bind.pod.rpartition("-")[2]), "Running", bind.node)
        self._group(job, "Running")
        self.usage.count(job, 1, self.now)
        self.waits[gang.job] = self.now - (EPOCH + job.at)
        heapq.heappush(self._ends, (self.now + job.seconds, gang.job))


def node_object(name: str, amounts: Amounts) -> tuple[Kind, dict[str, Any]]:
    """Return a node."""
    has = {**_listed(amounts), PODS: "1000"}
    return kinds.NODE, {"metadata": _named(name), "status": {"allocatable": has}}


def queue_object(name: str) -> tuple[Kind, dict[str, Any]]:
    """Return an open queue of weight 1."""
    spec = {"weight": 1}
    return kinds.QUEUE, {"metadata": _named(name), "spec": spec, "status": {"state": "Open"}}


def _named(name: str, namespace: str = "") -> dict[str, Any]:
    key = f"{namespace}/{name}" if namespace else name
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": f"uid-{key}", **place}


def _listed(amounts: Amounts) -> dict[str, str]:
    return {name: quantity(name, amount) for name, amount in amounts.items()}
