"""Builds clusters for tests of scheduling: terse words in, facts into a replica, plans out.

world = Cluster().node("n1", cpu="4").queue("default").gang("j", tasks=3, min_member=3, cpu="1")
world.decide().binds
"""

from typing import Any, Self

import msgspec

from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import configure, decide, open_session
from services.scheduler.engine import Plan, Replica
from services.scheduler.engine.records import Job
from services.scheduler.engine.session import Session
from shared.api import kinds


class Cluster:
    """A replica with a queue `default`, and the words to fill it."""

    def __init__(self, conf: str | None = None, *, queue: bool = True) -> None:
        self.replica = Replica(scheduler_names=("volcano",))
        self.config: SchedulerConfig = configure() if conf is None else configure(conf)
        self.cycle = 0
        if queue:
            self.queue("default")

    # --- facts -------------------------------------------------------------------------------

    def put(self, kind: kinds.Kind, document: dict[str, Any]) -> Self:
        view = msgspec.convert(document, kind.type)
        self.replica.apply(kind.token, "put", view.metadata.key, view.metadata.uid, view)
        return self

    def delete(self, kind: kinds.Kind, key: str, uid: str = "") -> Self:
        self.replica.apply(kind.token, "delete", key, uid or f"uid-{key}", None)
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
        asked = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v} | (requests or {})
        annotations = {"scheduling.k8s.io/group-name": group} if group else {}
        if role:
            annotations["volcano.sh/task-spec"] = role
        meta = {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-ns/{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations | (metadata or {}).pop("annotations", {}),
            **(metadata or {}),
        }
        if deleting:
            meta["deletionTimestamp"] = "2026-01-01T00:00:01Z"
        container = {"name": "main", "resources": {"requests": asked}, "ports": ports or []}
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

    def decide(self, **more: Any) -> Plan:
        self.cycle += 1
        return decide(self.replica, self.config, now=0.0, cycle=self.cycle, **more)

    def publish(self, plan: Plan) -> None:
        """Do what the shell does after publishing a plan."""
        for number, gang in enumerate(plan.binds):
            binds = [(bind.pod, bind.uid, bind.node) for bind in gang.binds]
            self.replica.assume(f"{plan.cycle}-{number}", binds)
        for number, eviction in enumerate(plan.evictions):
            intent = f"{plan.cycle}-e{number}"
            self.replica.assume_evictions(intent, [(eviction.pod, eviction.uid)])
        for nomination in plan.nominations:
            intent = f"{plan.cycle}-n"
            self.replica.assume_nomination(intent, nomination.uid, nomination.node)
        self.replica.adopt(plan)

    def step(self, **more: Any) -> Plan:
        plan = self.decide(**more)
        self.publish(plan)
        return plan

    def session(self, *, now: float = 0.0) -> Session:
        return open_session(self.replica, self.config, now=now)

    def job(self, name: str) -> Job:
        job = self.replica.jobs.get(f"ns/{name}")
        assert job is not None
        return job


def binds_of(plan: Plan) -> dict[str, str]:
    """Return pod name → node of everything that a plan binds."""
    return {bind.pod.partition("/")[2]: bind.node for gang in plan.binds for bind in gang.binds}


def evictions_of(plan: Plan) -> dict[str, str]:
    """Return pod name → name of the pod that it makes room for, of everything that has to go."""
    return {e.pod.partition("/")[2]: e.preemptor.partition("/")[2] for e in plan.evictions}


def phase_in(plan: Plan, name: str) -> str | None:
    """Return the phase that a plan wants for a PodGroup, None when it wants nothing."""
    return next((g.phase for g in plan.podgroups if g.key == f"ns/{name}"), None)


def _resources(more: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "/").replace("_", "."): amount for name, amount in more.items()}
