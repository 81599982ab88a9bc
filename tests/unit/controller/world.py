"""A cluster of one job for tests of the pure part: an API that applies effects, and a kubelet.

`Cluster` is the API server's side. `Controller` is one process: its memory dies with it, so a crash
is a new `Controller` on the same cluster. Facts arrive at once; that they may come late is the
replica's test.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from pumice.embedded.apiserver.patching import merge
from services.controller.adapters.records import JobRecord
from services.controller.job import effects
from services.controller.job.facts import JobFacts, PodView, pod_view
from services.controller.job.plan import Pass, advance
from shared.api import keys
from shared.api.batch import Command, Job, JobStatus, Target
from shared.api.core import Pod
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup, PodGroupPhase, Queue
from tests.support.structs import job
from tests.support.world import bare_task

START_S = 1_760_000_000.0
UID = "uid-train"
"""UID of the job, which is named `train`."""


class Crash(Exception):  # noqa: N818 - the fact
    """The process dies here."""


def task(name: str, replicas: int, **extra: Any) -> dict[str, Any]:
    """Return a task whose pods ask for one CPU."""
    return bare_task(name, replicas, {"cpu": "1"}, **extra)


class Cluster:
    """The objects around one job, as the API server holds them."""

    def __init__(self, first: Job, *, group_phase: PodGroupPhase | None) -> None:
        self.job = first
        self.pods: dict[str, Pod] = {}
        self.group: PodGroup | None = None
        self.commands: dict[str, Command] = {}
        self.queue: Queue | None = Queue(metadata=ObjectMeta(name="default", uid="q"))
        self.companions: set[str] = set()
        self.told: list[effects.RecordEvent] = []
        self.writes: list[str] = []
        self.created = 0
        self.now = START_S
        self._group_phase = group_phase
        self._rv = 1

    def rv(self) -> str:
        """Return the next resourceVersion."""
        self._rv += 1
        return str(self._rv)

    def change_pod(
        self, name: str, phase: str, exit_code: int = 0, restarts: int = 0, ended: str | None = None
    ) -> None:
        """Let the kubelet report something."""
        pod = self.pods[name]
        terminated = {"exitCode": exit_code, "finishedAt": ended}
        state = {"terminated": terminated} if phase in {"Failed", "Succeeded"} else {}
        status = {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": phase == "Running",
                    "restartCount": restarts,
                    "state": state,
                }
            ],
        }
        plain = {**msgspec.to_builtins(pod), "status": status}
        plain["metadata"] = {**plain["metadata"], "resourceVersion": self.rv()}
        self.pods[name] = msgspec.convert(plain, Pod)

    def run_all(self) -> None:
        """Let every pending pod run."""
        for name, pod in self.pods.items():
            if pod.status.phase == "Pending":
                self.change_pod(name, "Running")

    def command(self, action: str, name: str = "order") -> None:
        """Let a user order something."""
        self.commands[name] = Command(
            metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"),
            action=action,
            target=Target(
                api_version="batch.volcano.sh/v1alpha1", kind="Job", name="train", uid=UID
            ),
        )

    def apply(self, effect: effects.Effect) -> None:
        """Carry out one effect as the API server would; repeating one does no harm."""
        self.writes.append(type(effect).__name__)
        match effect:
            case effects.WriteJobStatus():
                meta = msgspec.structs.replace(self.job.metadata, resource_version=self.rv())
                self.job = msgspec.structs.replace(self.job, metadata=meta, status=effect.status)
            case effects.AmendJob():
                self._amend_job(effect)
            case effects.CreateGroup():
                plain = json.loads(msgspec.json.encode(effect.body))
                if self._group_phase is not None:
                    plain["status"] = {"phase": self._group_phase.value}
                plain["metadata"] |= {"uid": f"uid-group-{self.rv()}", "resourceVersion": "1"}
                self.group = msgspec.convert(plain, PodGroup)
            case effects.PatchGroup():
                assert self.group is not None
                patched = merge(msgspec.to_builtins(self.group), effect.patch)
                self.group = msgspec.convert(patched, PodGroup)
            case effects.DeleteGroup():
                self.group = None
            case effects.MarkPod():
                self._mark_pod(effect)
            case effects.DeletePod():
                self._delete_pod(effect)
            case effects.DeleteCommand():
                self.commands.pop(effect.name, None)
            case effects.EnsureCompanions():
                self.companions |= {f"{c.kind.kind}/{c.name}" for c in effect.companions}
            case effects.DropCompanions():
                self.companions -= {f"{c.kind.kind}/{c.name}" for c in effect.companions}
            case effects.RecordEvent():
                self.told.append(effect)
            case effects.CreatePods():
                for index in effect.indexes:
                    self._create_pod(effect.builder.body(index))

    def _amend_job(self, effect: effects.AmendJob) -> None:
        plain = json.loads(msgspec.json.encode(self.job))
        meta = effect.patch.get("metadata", {})
        plain["metadata"].setdefault("annotations", {}).update(meta.get("annotations", {}))
        plain["metadata"]["resourceVersion"] = self.rv()
        if "spec" in effect.patch:
            plain["spec"] |= effect.patch["spec"]
            plain["metadata"]["generation"] += 1
        self.job = msgspec.json.decode(json.dumps(plain), type=Job)

    def _create_pod(self, body: bytes) -> None:
        plain = json.loads(body)
        name = plain["metadata"]["name"]
        assert name not in self.pods, f"{name} is there already"
        self.created += 1
        plain["metadata"] |= {"uid": f"uid-pod-{self.created}", "resourceVersion": self.rv()}
        self.pods[name] = msgspec.convert(plain, Pod)

    def _mark_pod(self, effect: effects.MarkPod) -> None:
        pod = self.pods[effect.name]
        assert pod.metadata.uid == effect.uid
        marks = {**pod.metadata.annotations, keys.OUT_OF_SYNC: "true"}
        meta = msgspec.structs.replace(pod.metadata, annotations=marks, resource_version=self.rv())
        self.pods[effect.name] = msgspec.structs.replace(pod, metadata=meta)

    def _delete_pod(self, effect: effects.DeletePod) -> None:
        pod = self.pods.get(effect.name)
        if pod is not None and pod.metadata.uid == effect.uid:
            del self.pods[effect.name]


class Controller:
    """One process that looks after the job of a cluster; dies after `dies_after` effects."""

    def __init__(self, cluster: Cluster, *, dies_after: int = -1) -> None:
        self.cluster = cluster
        self._left = dies_after
        self.record = JobRecord(cluster.job, self._views(), scheduler_name="volcano")
        self.record.acquire()
        self.applied = 0

    def _views(self) -> dict[str, PodView]:
        found = (pod_view(pod) for pod in self.cluster.pods.values())
        return {view.name: view for _, view in filter(None, found)}

    def hear(self) -> None:
        """Take in what has changed, pod by pod, as facts would bring it."""
        self.record.take(self.cluster.job)
        if self.record.group is not self.cluster.group:
            self.record.group_changed(self.cluster.group)
        known = dict(self.record.pods)
        fresh = self._views()
        for name, before in known.items():
            if name not in fresh or fresh[name].uid != before.uid:
                self.record.changed(before, None)
        for name, after in fresh.items():
            before_it = self.record.pods.get(name)
            if before_it != after:
                self.record.changed(before_it, after)

    def look(self) -> Pass:
        """Do one pass."""
        cluster = self.cluster
        found = advance(
            JobFacts(
                job=self.record.job,
                problems=self.record.problems,
                pods=dict(self.record.pods),
                group=cluster.group,
                queue=cluster.queue,
                commands=tuple(cluster.commands.values()),
                desired_group=self.record.desired_group({}),
                completed=self.record.completed,
                applied=self.applied,
                interrupted=self.record.interrupted,
            ),
            tuple(self.record.requests.values()),
            self.record.delayed,
            now=cluster.now,
        )
        for effect in _in_order(found):
            if self._left == 0:
                raise Crash
            self._left -= 1
            cluster.apply(effect)
            if isinstance(effect, effects.EnsureCompanions):
                self.applied = effect.digest
            self.hear()
        self.record.forget(found.answered)
        self.record.delayed = found.delayed
        return found

    def settle(self) -> JobStatus:
        """Look until nothing is left to do; returns the job's status then."""
        self.hear()
        for _ in range(100):
            found = self.look()
            if not found.stages and not found.requeue and not self.record.requests:
                return self.cluster.job.status
        raise AssertionError(f"never settles: {self.cluster.writes[-12:]}")


def _in_order(found: Pass) -> Iterator[effects.Effect]:
    for stage in found.stages:
        yield from stage


def started(
    *tasks: dict[str, Any],
    group_phase: PodGroupPhase | None = PodGroupPhase.INQUEUE,
    **spec: Any,
) -> tuple[Cluster, Controller]:
    """Return a cluster with a new job and the controller that has made what it needs."""
    cluster = Cluster(job(*tasks, **spec), group_phase=group_phase)
    controller = Controller(cluster)
    controller.settle()
    return cluster, controller


def running(*tasks: dict[str, Any], **spec: Any) -> tuple[Cluster, Controller]:
    """Return a cluster whose job runs."""
    cluster, controller = started(*tasks, **spec)
    cluster.run_all()
    controller.settle()
    return cluster, controller
