"""A trace in virtual time: the engine decides at each arrival and each end, as in a cluster.

A job enters its queue first; its pods are made then, and placed in the cycle that follows. The
facts are those that the API server would show. At the submission of a job that does not start at
once a question may be asked.
"""

import heapq
import math
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from benchmarks.forecast.traces import Amounts, Trace, TraceJob
from services.scheduler.decide import configure, open_session, run_actions
from services.scheduler.engine.plan import GangBinds
from services.scheduler.engine.resources.dimensions import quantity
from services.scheduler.engine.session.activation import activate, refused_jobs
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import PLUGINS, STATES
from services.scheduler.policy.unschedulable_policy import unschedulable_policy
from shared.api import keys, kinds
from shared.api import time as times
from shared.api.kinds import Kind

EPOCH = 1_767_225_600.0
"""Unix seconds at which traces begin."""


class Replay:
    """One run of a trace."""

    def __init__(self, trace: Trace) -> None:
        self.config = configure()
        self.cluster_state = ClusterState(("volcano",), STATES)
        self.now = EPOCH
        self.jobs = {f"ns/{job.name}": job for job in trace.jobs}
        self.waits: dict[str, float] = {}
        """Job → how long it waited, once it has started."""
        self.ended: list[tuple[str, float]] = []
        """Jobs that have ended, and how long they ran."""
        self._trace = trace
        self._unschedulable_policy = unschedulable_policy(self.config, PLUGINS)._asdict()
        self._ends: list[tuple[float, str]] = []
        queue = {"metadata": _named("default"), "spec": {"weight": 1}, "status": {"state": "Open"}}
        self._put(kinds.QUEUE, queue)
        for name, has in trace.nodes.items():
            has_too = {**_listed(has), "pods": "1000"}
            self._put(kinds.NODE, {"metadata": _named(name), "status": {"allocatable": has_too}})

    def run(
        self, came: Callable[[str], None], ask: Callable[[str], None], asked: Collection[str]
    ) -> None:
        """Play the trace; `came` hears of each job, `ask` of those of `asked` that wait."""
        for job in self._trace.jobs:
            self._pass_to(EPOCH + job.at)
            self._submit(job)
            key = f"ns/{job.name}"
            came(key)
            self._decide()
            if key in asked and key not in self.waits:
                ask(key)
        self._pass_to(math.inf)

    def _pass_to(self, when: float) -> None:
        """Let jobs end until then."""
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

    def _group(self, job: TraceJob, phase: str) -> None:
        created = times.format_seconds(EPOCH + job.at)
        minimum = {name: job.pods * amount for name, amount in job.asks.items()}
        spec = {"minMember": job.pods, "queue": "default", "minResources": _listed(minimum)}
        said = {keys.EXPECTED_DURATION: f"{job.says:.0f}"} if job.says else {}
        meta = {**_named(job.name, "ns"), "creationTimestamp": created, "annotations": said}
        document = {"metadata": meta, "spec": spec, "status": {"phase": phase}}
        self._put(kinds.PODGROUP, document)

    def _pod(self, job: TraceJob, number: int, phase: str, node: str = "") -> None:
        asked = {"requests": _listed(job.asks)}
        meta = _named(f"{job.name}-{number}", "ns")
        started = {"startTime": times.format_seconds(self.now)} if node else {}
        created = times.format_seconds(EPOCH + job.at)
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
                    "containers": [{"name": "main", "resources": asked}],
                },
                "status": {"phase": phase, **started},
            },
        )

    def _submit(self, job: TraceJob) -> None:
        self._group(job, "Pending")

    def _end(self, key: str) -> None:
        """Do what is left of a job: its pods and group are gone."""
        job = self.jobs[key]
        for number in range(job.pods):
            pod = f"{key}-{number}"
            self.cluster_state.delete(kinds.POD.token, pod, f"uid-{pod}")
        self.cluster_state.delete(kinds.PODGROUP.token, key, f"uid-{key}")
        self.ended.append((key, job.seconds))

    # --- decisions ---------------------------------------------------------------------------

    def _decide(self) -> None:
        """Run cycles as long as one makes work for the next."""
        while self._cycle():
            pass

    def _cycle(self) -> bool:
        """Run a cycle and do what binder and controller do; return whether jobs got pods."""
        session = open_session(self.cluster_state, self.config, now=self.now)
        try:
            activate(session)
            let_in = {job.key for job in session.jobs if not job.is_pending}
            run_actions(session, self.config)
            entered = [j.key for j in session.jobs if j.key not in let_in and not j.is_pending]
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

    def _admit(self, job: TraceJob) -> None:
        self._group(job, "Inqueue")
        for number in range(job.pods):
            self._pod(job, number, "Pending")

    def _start(self, job: TraceJob, gang: GangBinds) -> None:
        for bind in gang.binds:
            self._pod(job, int(bind.pod.rpartition("-")[2]), "Running", bind.node)
        self._group(job, "Running")
        self.waits[gang.job] = self.now - (EPOCH + job.at)
        heapq.heappush(self._ends, (self.now + job.seconds, gang.job))


def _named(name: str, namespace: str = "") -> dict[str, Any]:
    key = f"{namespace}/{name}" if namespace else name
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": f"uid-{key}", **place}


def _listed(amounts: Amounts) -> dict[str, str]:
    return {name: quantity(name, amount) for name, amount in amounts.items()}
