"""The cluster on which scenarios play: one workload is created, changed and looked at."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from pumice.local.stack import LocalStack
from tests.support.api import Api, ApiError, gone_is_fine
from tests.support.wait import until
from tools.frameworks_check.operators import manifest
from tools.frameworks_check.running import RunningOperator
from tools.frameworks_check.submitting import Submission, Submitted, Submitter
from tools.frameworks_check.workloads import EXAMPLES, Object, Step, Workload, put, templates

NODES: Final = 4
CPUS: Final = 4
HALVES: Final = ("left", "right")
"""Blockers of all nodes: each holds half of their CPUs."""
_WAIT_S: Final = 60.0
_SUBMITTED_S: Final = 180.0
"""For programs that take long to start, such as Airflow."""
_STAYS_S: Final = 4.0
_RUN: Final = "pumice.dev/run-seconds"
NAMESPACE: Final = "team"
_CONFLICT: Final = 409


def _plural(manifest: Object) -> str:
    return f"{manifest['kind'].lower()}s"


class Stage:
    """A cluster with an operator, on which the scenarios of one workload play."""

    def __init__(
        self, stack: LocalStack, api: Api, operator: RunningOperator | None, workload: Workload
    ) -> None:
        self.api = api
        self.workload = workload
        self._stack = stack
        self._operator = operator
        self._created = 0
        """Runtimes and submissions: each workload that needs one has its own."""
        self._names: set[str] = set()
        self._submitted: dict[str, Submitted] = {}

    # --- objects -----------------------------------------------------------------------------

    def _path(self, name: str = "", *, api: str = "", plural: str = "") -> str:
        group = api or self.workload.api
        root = f"/{'apis' if '/' in group else 'api'}/{group}"
        tail = f"/{name}" if name else ""
        return f"{root}/namespaces/{NAMESPACE}/{plural or self.workload.plural}{tail}"

    def _objects(self, name: str) -> list[Object]:
        """Return the objects of the example for a name, the workload last."""
        word = self.workload.word
        objects = manifest(EXAMPLES / self.workload.example, word, name)
        if not word:
            objects[-1]["metadata"]["name"] = name
        return objects

    async def create(
        self,
        name: str,
        *,
        workers: int | None = None,
        priority: str = "high-priority",
        run_s: int = 0,
    ) -> Object:
        """Create the example under a name, and what stands before it in its file."""
        self._names.add(name)
        *before, workload = self._objects(name)
        self._adapt([*before, workload], workers, priority, run_s)
        for each in before:
            if each["kind"] == "PodGroup":
                each["spec"]["minMember"] = self.workload.least(workers)
                each["spec"]["priorityClassName"] = priority
            elif not self.workload.word:
                self._created += 1
                each["metadata"]["name"] = f"{name}-{self._created}"
                workload["spec"]["runtimeRef"]["name"] = each["metadata"]["name"]
            await self._sent(self._path(api=each["apiVersion"], plural=_plural(each)), each)
        submitter = self.workload.submitter
        if submitter is None or not submitter.creates:
            workload = await self._sent(self._path(), workload)
        if submitter is not None:
            self._submit(submitter, workload)
            if not submitter.creates:
                await self.wait(f"{name} has pods", lambda: self._has_pods(name, workers))
        return workload

    async def _has_pods(self, name: str, workers: int | None) -> bool:
        return len(await self.pods(name)) == (workers or self.workload.pods)

    def _adapt(self, objects: list[Object], workers: int | None, priority: str, run_s: int) -> None:
        """Change workers, priority and duration of an example; its last object is the workload."""
        about, workload = self.workload, objects[-1]
        if workers is not None:
            put(workload, about.count, workers)
            if about.minimum is not None:
                put(workload, about.minimum, str(workers))
        if about.priority is not None:
            put(workload, about.priority, priority)
        if run_s and about.annotations is not None:
            put(workload, about.annotations, {_RUN: str(run_s)})
        for number, template in enumerate(templates(objects)):
            if about.priority is None:
                template["spec"]["priorityClassName"] = priority
            if run_s and number < (about.ends_with or number + 1):
                notes = template.setdefault("metadata", {}).setdefault("annotations", {})
                notes[_RUN] = str(run_s)

    def _submit(self, submitter: Submitter, workload: Object) -> None:
        """Start the program that sends a workload."""
        self._created += 1
        metadata = workload["metadata"]
        folder = f"{self.workload.title}-{metadata['name']}-{self._created}"
        self._submitted[metadata["name"]] = Submitted(
            submitter,
            Submission(
                workload={**workload, "metadata": {**metadata, "namespace": NAMESPACE}},
                folder=self._stack.plane.directory / folder,
                plane=self._stack.plane,
            ),
        )

    async def finished(self, name: str) -> None:
        """Wait until the program that sent a workload has ended well."""
        if name in self._submitted:
            await self.wait(f"what sent {name} has ended", self._submitted[name].succeeded)

    async def _sent(self, path: str, body: Object) -> Object:
        """Create an object; an operator may say that it is ready before its webhooks are."""
        found: list[Object] = []

        async def created() -> bool:
            try:
                found.append(await self.api.request("POST", path, body))
            except ApiError as error:
                if "failed to call webhook" not in error.message:
                    raise
            return bool(found)

        await self.wait(f"{body['kind']} can be created", created)
        return found[0]

    async def change(self, name: str, path: tuple[Step, ...], *, value: Any) -> None:  # noqa: ANN401
        """Set a field of a workload."""
        while True:
            found = await self.get(name)
            put(found, path, value)
            try:
                await self.api.request("PUT", self._path(found["metadata"]["name"]), found)
            except ApiError as error:
                if error.status != _CONFLICT:
                    raise
            else:
                return

    async def get(self, name: str) -> Object:
        """Return a workload."""
        return await self.api.request(
            "GET", self._path(self._objects(name)[-1]["metadata"]["name"])
        )

    async def delete(self, name: str) -> None:
        """Delete a workload as kubectl does; the server's own default keeps the pods of a Job."""
        if name in self._submitted:
            await self._submitted.pop(name).stop()
        objects = self._objects(name)
        for each in objects if self.workload.word else objects[-1:]:
            path = self._path(
                each["metadata"]["name"], api=each["apiVersion"], plural=_plural(each)
            )
            with gone_is_fine():
                await self.api.request("DELETE", f"{path}?propagationPolicy=Background")

    async def pods(self, name: str = "") -> list[Object]:
        """Return the pods of a workload, or of all, that are not being deleted."""
        found = await self.api.items("pods", NAMESPACE)
        return [
            pod
            for pod in found
            if not pod["metadata"].get("deletionTimestamp")
            and (not name or self._is_of(pod["metadata"], name))
        ]

    def _is_of(self, metadata: Object, name: str) -> bool:
        label = self.workload.label
        is_named: bool = metadata["name"].startswith(f"{name}-")
        return is_named and (not label or label in metadata.get("labels", {}))

    async def running(self, name: str) -> list[Object]:
        """Return the pods of a workload that run."""
        return [pod for pod in await self.pods(name) if pod["status"].get("phase") == "Running"]

    async def group(self, name: str) -> Object | None:
        """Return the PodGroup of a workload, None before there is one.

        Its owner is the workload, a JobSet that has the name of its TrainJob, or a leader pod; that
        of a user has the name.
        """
        names = {name, f"{name}-0"}
        for group in await self.api.items("podgroups", NAMESPACE):
            owners = group["metadata"].get("ownerReferences", ())
            if group["metadata"]["name"] == name or any(o["name"] in names for o in owners):
                return group
        return None

    # --- conditions --------------------------------------------------------------------------

    async def wait(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition holds."""
        deadline_s = _WAIT_S if self.workload.submitter is None else _SUBMITTED_S
        await until(holds, deadline_s=deadline_s, describe=lambda: what)

    async def wait_running(self, name: str, count: int) -> None:
        """Wait until so many pods of a workload run, and no others are there."""

        async def holds() -> bool:
            return len(await self.running(name)) == len(await self.pods(name)) == count

        await self.wait(f"{count} pods of {name} run", holds)

    async def wait_minimum(self, name: str, minimum: int) -> Object:
        """Wait until the PodGroup of a workload has that minimum; return it."""
        found: list[Object] = []

        async def holds() -> bool:
            group = await self.group(name)
            found[:] = [group] if group else []
            return bool(found) and found[0]["spec"].get("minMember") == minimum

        await self.wait(f"the PodGroup of {name} has the minimum {minimum}", holds)
        return found[0]

    async def stays(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Check that a condition holds for some seconds."""
        end = asyncio.get_running_loop().time() + _STAYS_S
        while asyncio.get_running_loop().time() < end:
            assert await holds(), what
            await asyncio.sleep(0.2)

    @contextlib.asynccontextmanager
    async def clean(self) -> AsyncIterator[None]:
        """Play a scenario in an empty namespace."""
        try:
            yield
        finally:
            for name in self._names:
                await self.delete(name)
            for half in HALVES:
                await self.unblock(half)
            await self.wait_nothing()

    async def wait_nothing(self) -> None:
        """Wait until no pod and no PodGroup is left; pods that stop are forced to."""

        async def holds() -> bool:
            groups = await self.api.items("podgroups", NAMESPACE)
            return not await self.api.items("pods", NAMESPACE) and not groups

        await self.wait("no pod and no PodGroup is left", holds)

    async def block(self, name: str) -> None:
        """Hold half of the CPUs of each node with a pod that no scheduler places."""
        for number in range(NODES):
            request = {"requests": {"cpu": str(CPUS // 2)}}
            spec = {
                "nodeName": f"node-{number}",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i", "resources": request}],
            }
            body = {"metadata": {"name": f"{name}-{number}"}, "spec": spec}
            await self.api.create("pods", body, NAMESPACE)

    async def unblock(self, name: str) -> None:
        """Free what `block` holds under a name."""
        for number in range(NODES):
            with gone_is_fine():
                await self.api.delete("pods", NAMESPACE, f"{name}-{number}", 0)

    async def pumice(self, *words: str) -> str:
        """Return what a command of Pumice prints."""
        kubeconfig = self._stack.plane.kubeconfig
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pumice", *words),
            *("-n", NAMESPACE, f"--kubeconfig={kubeconfig}"),
            env=os.environ.copy(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return out.decode()

    async def restart(self) -> None:
        """Kill the operator, and Pumice's scheduler and controller, and start them again."""
        if self._operator is not None:
            await self._operator.restart()
        for name in ("scheduler", "controller"):
            service = self._stack.services[name]
            service.process.kill()
            service.process.start()
            await service.ready(deadline_s=_WAIT_S)
