"""For tests of scheduler plugins: builds a small cluster, runs scheduling cycles, reads plans.

The objects go through the decoders of the real scheduler, and each cycle is one of the real
scheduler; only Kubernetes and NATS are absent. It needs the services (`pip install
'pumice[services]'`). Pumice's own tests use it too::

    cluster = Cluster(CONF, plugins=[RunningLimit]).node("n1", cpu="4")
    cluster.gang("a", tasks=3, cpu="1")
    assert binds_of(cluster.step()) == {"a-0": "n1", "a-1": "n1", "a-2": "n1"}
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Self

import msgspec

from pumice.plugins import Plugin
from services.scheduler.adapters.expressions import waiting_evaluator
from services.scheduler.config import DEFAULT_TEXT, SchedulerConfig
from services.scheduler.decide import configure, decide, open_session
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.session.session import Session
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.foreign import ForeignPlugin, PluginFailure
from services.scheduler.policy.catalog import PLUGINS, Plugins, foreign_states, states
from shared.api import kinds

STATES = states(evaluator=waiting_evaluator())
"""What the policy keeps; conditions on devices are evaluated as in the real scheduler."""
NAMESPACE = "ns"
"""Namespace of all PodGroups and pods."""


class Cluster:
    """A cluster state with a queue `default`, and the words to fill it."""

    def __init__(
        self, conf: str | None = None, *, plugins: Iterable[type[Plugin]] = (), queue: bool = True
    ) -> None:
        """Take a configuration file's text and plugins beside the built-in ones.

        Raises `BadConfig`.
        """
        self.failures: list[PluginFailure] = []
        """Failures of the plugins so far."""
        self.plugins: Plugins = {**PLUGINS, **{kind.name: self._guarded(kind) for kind in plugins}}
        kept = (*STATES, *foreign_states(self.plugins))
        self.cluster_state = ClusterState(("volcano",), kept)
        text = DEFAULT_TEXT if conf is None else conf
        self.config: SchedulerConfig = (
            configure(text, plugins=self.plugins) if plugins else _configured(text)
        )
        self.cycle = 0
        if queue:
            self.queue("default")

    def _guarded(self, kind: type[Plugin]) -> ForeignPlugin:
        return ForeignPlugin(kind, name=kind.name, origin="a test", note=self.failures.append)

    # --- facts -------------------------------------------------------------------------------

    def put(self, kind: kinds.Kind, document: dict[str, Any]) -> Self:
        """Put an object in: JSON in the form of the API, as far as the scheduler reads it."""
        view: Any = msgspec.convert(document, kind.type)
        self.cluster_state.put(kind.token, view.metadata.key, view.metadata.uid, view)
        return self

    def delete(self, kind: kinds.Kind, key: str, uid: str = "") -> Self:
        """Delete an object by its key, `namespace/name` or `name`."""
        self.cluster_state.delete(kind.token, key, uid or f"uid-{key}")
        return self

    def node(
        self,
        name: str,
        *,
        cpu: str = "8",
        memory: str = "16Gi",
        pods: str = "110",
        labels: dict[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        unschedulable: bool = False,
        **more: str,
    ) -> Self:
        """Add a node; `nvidia_com__gpu` is the resource `nvidia.com/gpu`."""
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **_resources(more)}
        return self.put(
            kinds.NODE,
            {
                "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels or {}},
                "spec": {"taints": taints or [], "unschedulable": unschedulable},
                "status": {"allocatable": allocatable},
            },
        )

    def queue(self, name: str, *, state: str = "Open", **spec: Any) -> Self:
        """Add a queue, or change it; `spec` as in the API."""
        return self.put(
            kinds.QUEUE,
            {
                "metadata": {"name": name, "uid": f"uid-{name}"},
                "spec": spec,
                "status": {"state": state},
            },
        )

    def group(
        self,
        name: str,
        *,
        min_member: int = 1,
        phase: str = "Inqueue",
        queue: str = "default",
        uid: str = "",
        created: str = "2026-01-01T00:00:00Z",
        **spec: Any,
    ) -> Self:
        """Add a PodGroup, or change it; `spec` as in the API."""
        return self.put(
            kinds.PODGROUP,
            {
                "metadata": {
                    "name": name,
                    "namespace": "ns",
                    "uid": uid or f"uid-ns/{name}",
                    "creationTimestamp": created,
                },
                "spec": {"minMember": min_member, "queue": queue, **spec},
                "status": {"phase": phase} if phase else {},
            },
        )

    def pod(
        self,
        name: str,
        group: str = "",
        *,
        cpu: str = "",
        memory: str = "",
        node: str = "",
        phase: str = "",
        role: str = "",
        uid: str = "",
        scheduler: str = "volcano",
        deleting: bool = False,
        metadata: dict[str, Any] | None = None,
        status: dict[str, Any] | None = None,
        ports: list[dict[str, Any]] | None = None,
        requests: dict[str, str] | None = None,
        **spec: Any,
    ) -> Self:
        """Add a pod of a PodGroup, or change it: running where a node is named, else pending."""
        amounts = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v} | (requests or {})
        annotations = {"scheduling.k8s.io/group-name": group} if group else {}
        if role:
            annotations["volcano.sh/task-spec"] = role
        more = dict(metadata or {})
        meta = {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-ns/{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations | more.pop("annotations", {}),
            **more,
        }
        if deleting:
            meta["deletionTimestamp"] = "2026-01-01T00:00:01Z"
        container = {"name": "main", "resources": {"requests": amounts}, "ports": ports or []}
        return self.put(
            kinds.POD,
            {
                "metadata": meta,
                "spec": {
                    "schedulerName": scheduler,
                    "nodeName": node,
                    "containers": [container],
                    **spec,
                },
                "status": {"phase": phase or ("Running" if node else "Pending"), **(status or {})},
            },
        )

    def gang(
        self, name: str, *, tasks: int, min_member: int | None = None, cpu: str = "1", **more: Any
    ) -> Self:
        """Add a PodGroup in phase Inqueue and its pods `<name>-0` … of one shape."""
        group = {k: more.pop(k) for k in ("phase", "queue", "created", "minResources") if k in more}
        self.group(name, min_member=tasks if min_member is None else min_member, **group)
        for number in range(tasks):
            self.pod(f"{name}-{number}", name, cpu=cpu, **more)
        return self

    # --- deciding ----------------------------------------------------------------------------

    def decide(self, *, now: float = 0.0, **more: Any) -> Plan:
        """Run a cycle at a time in Unix seconds. Raises `AssertionError` if a plugin failed."""
        self.cycle += 1
        known = len(self.failures)
        given = {"plugins": self.plugins, **more}
        plan = decide(self.cluster_state, self.config, now=now, cycle=self.cycle, **given)
        assert self.failures[known:] == [], self.failures[known:]
        return plan

    def publish(self, plan: Plan) -> None:
        """Do what the shell does after publishing a plan."""
        for number, gang in enumerate(plan.binds):
            self.cluster_state.assume(f"{plan.cycle}-{number}", gang.binds)
        for number, eviction in enumerate(plan.evictions):
            self.cluster_state.assume_evictions(f"{plan.cycle}-e{number}", [eviction])
        for nomination in plan.nominations:
            intent = f"{plan.cycle}-n"
            self.cluster_state.assume_nomination(intent, nomination.uid, nomination.node)
        self.cluster_state.assume_statuses(plan)

    def step(self, **more: Any) -> Plan:
        """Run a cycle and go by its plan from then on."""
        plan = self.decide(**more)
        self.publish(plan)
        return plan

    def session(self, *, now: float = 0.0) -> Session:
        """Open a session, which the caller closes."""
        return open_session(self.cluster_state, self.config, now=now, plugins=self.plugins)

    def job(self, name: str) -> Job:
        """Return what the scheduler knows of a PodGroup."""
        job = self.cluster_state.jobs.get(f"ns/{name}")
        assert job is not None
        return job


def binds_of(plan: Plan) -> dict[str, str]:
    """Return pod name → node of everything that a plan binds."""
    return {bind.pod.partition("/")[2]: bind.node for gang in plan.binds for bind in gang.binds}


def evictions_of(plan: Plan) -> dict[str, str]:
    """Return pod name → name of the pod that it makes room for, of everything that has to go."""
    return {e.pod.partition("/")[2]: e.preemptor.partition("/")[2] for e in plan.evictions}


def phase_in(plan: Plan, name: str) -> str | None:
    """Return the phase that a plan desires for a PodGroup, None without one."""
    return next((g.phase for g in plan.podgroups if g.key == f"ns/{name}"), None)


@lru_cache(maxsize=64)
def _configured(text: str) -> SchedulerConfig:
    """Return what a text says to the built-in plugins: many tests share one, and YAML is slow."""
    return configure(text)


def _resources(more: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "/").replace("_", "."): amount for name, amount in more.items()}
