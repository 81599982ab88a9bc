"""The controllers on an API server in memory.

`Stage` is the world: the embedded API server, jobs that get on as a test wants, a clock. `Process`
is what runs of the controller: its own adapters over a picture of the world that is as old as the
test lets it be. A process dies right after one of its writes, before it knows of it, as by kill -9.
"""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pumice.embedded.apiserver.replies import ApiReply
from pumice.embedded.apiserver.replies import ApiRequest as CoreRequest
from services.controller.adapters.informers import Informers
from services.controller.adapters.ownership import PartitionOwnership
from services.controller.adapters.reconciler import (
    ControllerContext,
    Reconciler,
    SingletonReconciler,
)
from services.controller.adapters.recorder import ControllerEvents, ControllerRecorder
from services.controller.adapters.write_queue import WriteQueue
from services.controller.adapters.writer import Writer
from services.controller.controllers import CONTROLLERS, Controller
from services.controller.cronjob.steps import Step, StepGenerator, StepResult, SyncResult
from services.controller.metrics import ControllerMetrics
from services.controller.settings import ControllerSettings
from shared.api import kinds, time
from shared.api.batch import Job, JobStatus
from shared.api.kinds import Kind
from shared.api.scheduling import PodGroup, Queue, QueueState
from shared.contracts.messages import Fact
from shared.kube.client import Kube
from shared.kube.errors import Status, read_status, refusal
from shared.kube.wire import Request, Stream
from shared.runtime.backoff import Backoff
from shared.runtime.errors import Retryable
from shared.runtime.metrics import Metrics
from shared.runtime.quarantine import QuarantineRegistry
from shared.runtime.supervise import Part
from shared.runtime.workqueue import WorkQueue, WorkQueueMetrics
from tests.support.api_server import ApiServer
from tests.support.clock import VirtualClock
from tests.support.env import env_of_a_test
from tests.support.manifests import LOADER
from tests.support.world import fact
from tests.unit.controller import provisioning

CRDS = Path(__file__).parents[3] / "k8s" / "crds"
KEPT = (
    kinds.JOB, kinds.CRONJOB, kinds.JOBFLOW, kinds.JOBTEMPLATE, kinds.QUEUE, kinds.COMMAND,
    kinds.PODGROUP, kinds.POD, kinds.NODE, kinds.HYPERNODE, kinds.NODESHARD, kinds.RESOURCEQUOTA,
    kinds.PROVISIONINGREQUEST,
)  # fmt: skip
NAMESPACE = "default"
PHASES = ("Pending", "Running", "Completed")


class Died(BaseException):
    """The process is no more; it is raised where its next step would have been."""


class Stage:
    """Make an API server without objects, and all controllers on it."""

    def __init__(self, start: str = "2025-03-11T10:00:30Z") -> None:
        numbers = itertools.count(1)
        self.clock = VirtualClock(time.parse(start))
        self.core = ApiServer(
            now=self.clock.now, uids=lambda: f"00000000-0000-4000-8000-{next(numbers):012}",
            crds=definitions(),
        )  # fmt: skip
        self.made: list[str] = []
        """Names of all jobs that were ever made, in their order."""
        self.writes: Counter[str] = Counter()
        """Writes of all processes, such as `PATCH jobflows/status`."""

    def ask(self, method: str, kind: Kind, name: str = "", body: Any = None, sub: str = "") -> Any:
        """Do something as the administrator."""
        request = CoreRequest(
            method=method,
            path=kind.path(NAMESPACE if kind.namespaced else "", name, sub),
            headers={"content-type": "application/merge-patch+json"} if method == "PATCH" else {},
            body=json.dumps(body or {}).encode(),
        )
        answer = self.handle(request)
        assert answer.status < 400, answer.body
        return json.loads(answer.body)

    def handle(self, request: CoreRequest) -> ApiReply:
        """Carry out a request at once, with all that follows of it."""
        answer = self.core.handle(request)
        assert isinstance(answer, ApiReply), "there are no watches here"
        is_job = request.path == kinds.JOB.path(NAMESPACE)
        if request.method == "POST" and is_job and answer.status < 300:
            self.made.append(json.loads(answer.body)["metadata"]["name"])
        self.core.tick()
        return answer

    def items(self, kind: Kind) -> list[dict[str, Any]]:
        """Return all objects of a kind."""
        found: list[dict[str, Any]] = self.ask("GET", kind)["items"]
        return found

    def create(self, kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
        """Create an object."""
        meta = {"name": name, **({"namespace": NAMESPACE} if kind.namespaced else {})}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
        self.ask("POST", kind, body=body)

    def template(self, name: str, **job: Any) -> None:
        """Create a JobTemplate."""
        self.create(kinds.JOBTEMPLATE, name, job_spec(**job))

    def flow(self, name: str, needs: Mapping[str, list[str]], **spec: Any) -> None:
        """Create a flow; `needs` has the targets of each entry."""
        flows = [{"name": n, "dependsOn": {"targets": t}} for n, t in needs.items()]
        self.create(kinds.JOBFLOW, name, {"flows": flows, **spec})

    def advance_jobs(self, *, most: int = len(PHASES)) -> None:
        """Let each job enter the next one of `PHASES`, as far as the first `most` of them."""
        for job in self.items(kinds.JOB):
            phase = job.get("status", {}).get("state", {}).get("phase", "")
            place = PHASES.index(phase) + 1 if phase else 0
            if place < most and "deletionTimestamp" not in job["metadata"]:
                self._enter(job["metadata"]["name"], PHASES[place])

    def _enter(self, name: str, phase: str) -> None:
        since = time.format_seconds(self.clock.now())
        state = {"phase": phase, "lastTransitionTime": since}
        self.ask("PATCH", kinds.JOB, name, {"status": {"state": state}}, "status")


@cache
def definitions() -> tuple[dict[str, Any], ...]:
    """Return the CRDs of what is kept."""
    of_others = {kinds.PROVISIONINGREQUEST}
    names = {f"{k.group}_{k.plural}.yaml" for k in KEPT if k.group and k not in of_others}
    own = [yaml.load((CRDS / name).read_text(), LOADER) for name in sorted(names)]
    return (*own, provisioning.definition())


def job_spec(**more: Any) -> dict[str, Any]:
    """Return the spec of a job with one task."""
    pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {"tasks": [{"name": "a", "replicas": 1, "template": pod}], **more}


class Process:
    """Start a process; with `dies_at` N it dies at its N-th write."""

    def __init__(
        self,
        stage: Stage,
        *,
        dies_at: int = 0,
        trusted: Sequence[str] = (NAMESPACE,),
        workload_groups: str = "",
    ) -> None:
        """`trusted` namespaces may order queues about.

        `workload_groups` is the ConfigMap with rows of workloads, empty for a group per controller.
        """
        self.stage = stage
        self.informers = Informers(scheduler_names=["volcano"], loads=True)
        self.refused: set[str] = set()
        """Requests that another webhook refuses, such as `PATCH queues/a/status`."""
        self.denied = 0
        """How often it did."""
        self.quarantined = QuarantineRegistry()
        self._left = dies_at
        self.is_dead = False
        self._wire(trusted, workload_groups)

    async def look(self, *only: str) -> None:
        """Reconcile all keys of the controllers with these names, in their order."""
        for name in only:
            for key in list(self.controllers[name].keys()):
                try:
                    await self.controllers[name].process(key)
                except Retryable:
                    continue

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[None]:
        """Run the workers of a controller, as in the service, on the stage's clock.

        `events` is the recorder, which writes what the controllers tell.
        """
        controller = self.controllers.get(name)
        if isinstance(controller, SingletonReconciler):
            controller.enqueue_all()
        part: Part = controller or self.manager.recorder
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(part.run(), name=name)
            yield
            running.cancel()

    def relist(self) -> None:
        """List all objects again, as an informer does after it lost its watch."""
        self.informers.begin_resync()
        self.informers.fold(self._facts())
        self.informers.complete()

    async def exchange(self, request: Request) -> bytes:
        """Carry a request to the API server, unless the process dies of it: a Transport."""
        writes = request.method != "GET"
        if self.is_dead:
            raise Died
        if f"{request.method} {_place(request.path)}" in self.refused:
            self.denied += 1
            status = Status(code=403, reason="Forbidden", message="denied by the webhook of a test")
            raise refusal(request.doing, status, {})
        answer = self.stage.handle(
            CoreRequest(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers={"content-type": request.content_type},
                body=request.body or b"",
            )
        )
        if writes:
            self.stage.writes[f"{request.method} {_resource(request.path)}"] += 1
            self._left -= 1
            self.is_dead = self._left == 0
        if self.is_dead:
            raise Died
        if answer.status >= 400:
            raise refusal(
                request.doing, read_status(answer.status, answer.body), dict(answer.headers)
            )
        return answer.body

    async def open(self, request: Request) -> Stream:
        """Refuse: there are no watches here."""
        raise AssertionError(request.doing)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    @property
    def host(self) -> str:
        """Return a word for messages."""
        return "memory"

    def _facts(self) -> Iterable[Fact]:
        for kind in KEPT:
            for item in self.stage.items(kind):
                yield fact(kind.token, item)

    def _wire(self, trusted: Sequence[str], workload_groups: str) -> None:
        kube, clock = Kube(transport=self), self.stage.clock
        metrics = ControllerMetrics(Metrics())
        env = env_of_a_test(instance="p", clock=clock, quarantined=self.quarantined)
        settings = ControllerSettings(
            queue_commands_from=tuple(trusted),
            workload_groups_config_map=workload_groups,
            topology_config_map=f"{NAMESPACE}/topology",
            topology_hosts=("*",),
            sharding_configmap_namespace=NAMESPACE,
        )
        self.manager = ControllerContext(
            settings=settings,
            namespace="",
            kube=kube,
            informers=self.informers,
            writer=Writer(kube, self.informers, queue=WriteQueue(4), metrics=metrics),
            recorder=ControllerRecorder(kube, env=env, metrics=metrics),
            events=_Silence(),
            ownership=_Everything(clock=clock),
            is_synced=lambda: True,
            env=env,
            metrics=metrics,
        )
        self.controllers: dict[str, Reconciler] = {}
        self._queue_metrics = WorkQueueMetrics(Metrics())
        for row in CONTROLLERS:
            self.start(row)

    def start(self, row: Controller) -> Reconciler:
        """Add a controller to those of the process."""
        kind, stage = row.quarantined_as
        queue: WorkQueue[str] = WorkQueue(
            row.queue,
            kind=kind,
            stage=stage,
            capacity=10_000,
            backoff=Backoff(first_s=0.1, cap_s=10.0, rng=random.Random(1)),
            env=self.manager.env,
            metrics=self._queue_metrics,
        )
        made = row.reconciler(self.manager, queue, workers=2)
        self.controllers[made.name] = made
        self.informers.on_change(made.enqueue)
        return made


class _Silence(ControllerEvents):
    """Recorder without subscribers."""

    def __init__(self) -> None:
        """Make a recorder that announces nothing."""

    def queue(self, queue: Queue, *, was: QueueState | None, state: QueueState) -> None:
        """Say nothing of a queue."""

    def phase(self, job: Job, *, was: str, status: JobStatus, group: PodGroup | None) -> None:
        """Say nothing of a job."""

    def announce_if_fresh(self, job: Job, group: PodGroup | None, *, now: float) -> None:
        """Say nothing of a job."""


class _Everything(PartitionOwnership):
    """A process that is alone."""

    def owns(self, key: str) -> bool:
        return True


def _place(path: str) -> str:
    """Return what comes after group, version and namespace."""
    for root in (f"/namespaces/{NAMESPACE}/", "/v1beta1/", "/v1alpha1/", "/v1/"):
        if root in path:
            return path.partition(root)[2]
    return path


def _resource(path: str) -> str:
    plural, *place = _place(path).split("/")
    return "/".join([plural, *place[1:]])


def played(look: StepGenerator[SyncResult], answer: Callable[[Step], StepResult]) -> SyncResult:
    """Return what a look comes to when `answer` says what the API server makes of each ask."""
    said: StepResult = None
    while True:
        try:
            ask = look.send(said)
        except StopIteration as stop:
            outcome: SyncResult = stop.value
            return outcome
        said = answer(ask)
