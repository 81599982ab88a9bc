"""The scenarios: what users expect of a gang scheduler, for each workload."""

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
from tools.frameworks_check.workloads import EXAMPLES, Object, Step, Workload, at, put, templates

NODES: Final = 4
CPUS: Final = 4
HALVES: Final = ("left", "right")
"""Blockers of all nodes: each holds half of their CPUs."""
_WAIT_S: Final = 60.0
_STAYS_S: Final = 4.0
_ALIKE: Final = 30
"""Looks in a row at a state that counts as settled."""
_QUEUE: Final = "research"
_RUN: Final = "pumice.dev/run-seconds"
NAMESPACE: Final = "team"
_CONFLICT: Final = 409


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
        """Runtimes: each workload that needs one has its own."""

    # --- objects -----------------------------------------------------------------------------

    def _path(self, name: str = "", *, api: str = "", plural: str = "") -> str:
        group = api or self.workload.api
        root = f"/{'apis' if '/' in group else 'api'}/{group}"
        tail = f"/{name}" if name else ""
        return f"{root}/namespaces/{NAMESPACE}/{plural or self.workload.plural}{tail}"

    async def create(
        self,
        name: str,
        *,
        workers: int | None = None,
        priority: str = "high-priority",
        run_s: int = 0,
    ) -> Object:
        """Create the example under a name, and what stands before it in its file."""
        *before, workload = manifest(EXAMPLES / self.workload.example)
        workload["metadata"]["name"] = name
        if workers is not None:
            put(workload, self.workload.count, workers)
            if self.workload.minimum is not None:
                put(workload, self.workload.minimum, str(workers))
        if self.workload.priority is not None:
            put(workload, self.workload.priority, priority)
        if run_s and self.workload.annotations is not None:
            put(workload, self.workload.annotations, {_RUN: str(run_s)})
        for number, template in enumerate(templates([*before, workload])):
            if self.workload.priority is None:
                template["spec"]["priorityClassName"] = priority
            if run_s and number < (self.workload.ends_with or number + 1):
                notes = template.setdefault("metadata", {}).setdefault("annotations", {})
                notes[_RUN] = str(run_s)
        for each in before:
            self._created += 1
            each["metadata"]["name"] = f"{name}-{self._created}"
            workload["spec"]["runtimeRef"]["name"] = each["metadata"]["name"]
            plural = f"{each['kind'].lower()}s"
            await self._sent(self._path(api=each["apiVersion"], plural=plural), each)
        return await self._sent(self._path(), workload)

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
                await self.api.request("PUT", self._path(name), found)
            except ApiError as error:
                if error.status != _CONFLICT:
                    raise
            else:
                return

    async def get(self, name: str) -> Object:
        """Return a workload."""
        return await self.api.request("GET", self._path(name))

    async def delete(self, name: str) -> None:
        """Delete a workload as kubectl does; the server's own default keeps the pods of a Job."""
        with gone_is_fine():
            await self.api.request("DELETE", f"{self._path(name)}?propagationPolicy=Background")

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

        Its owner is the workload, a JobSet that has the name of its TrainJob, or a leader pod.
        """
        names = {name, f"{name}-0"}
        for group in await self.api.items("podgroups", NAMESPACE):
            owners = group["metadata"].get("ownerReferences", ())
            if any(owner["name"] in names for owner in owners):
                return group
        return None

    # --- conditions --------------------------------------------------------------------------

    async def wait(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition holds."""
        await until(holds, deadline_s=_WAIT_S, describe=lambda: what)

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
            for item in (await self.api.request("GET", self._path()))["items"]:
                await self.delete(item["metadata"]["name"])
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


async def runs(stage: Stage) -> None:
    """Check that a workload gets its queue, its minimum and all its pods, and that it ends."""
    workload = stage.workload
    await stage.create("one", run_s=3 if workload.ends else 0)
    group = await stage.wait_minimum("one", workload.least())
    assert group["spec"]["queue"] == _QUEUE, group["spec"]
    if workload.prioritized:
        assert group["spec"].get("priorityClassName") == "high-priority", group["spec"]
    if workload.ends is None:
        await stage.wait_running("one", workload.pods)
        return

    async def ended() -> bool:
        return workload.has_ended(await stage.get("one"))

    await stage.wait(f"{workload.kind} ends", ended)


async def waits(stage: Stage) -> None:
    """Check that a gang that does not fit waits whole, and is explained by its workload's name."""
    workload = stage.workload
    await stage.create("big", workers=workload.too_many)
    await stage.wait_minimum("big", workload.least(workload.too_many))

    async def told() -> bool:
        group = await stage.group("big") or {}
        conditions = group.get("status", {}).get("conditions", ())
        return any(c["type"] == "Unschedulable" and c["status"] == "True" for c in conditions)

    await stage.wait("the PodGroup says why it waits", told)

    async def none_placed() -> bool:
        return not any(pod["spec"].get("nodeName") for pod in await stage.pods("big"))

    await stage.stays("no pod of a gang that does not fit is placed", none_placed)
    own = f"{workload.kind.lower()}/big"
    for command in (("why",), ("when",), ("top", "-o", "wide")):
        told_text = await stage.pumice(*command)
        assert own in told_text, told_text
    for command in ("why", "timeline"):
        told_text = await stage.pumice(command, own)
        assert f" of {workload.kind} big" in told_text, told_text


async def priority(stage: Stage) -> None:
    """Check that of two gangs that wait, the one of the higher priority starts first."""
    for half in HALVES:
        await stage.block(half)
    await stage.create("low", priority="low-priority")
    await stage.wait_minimum("low", stage.workload.least())
    await stage.create("high")
    await stage.wait_minimum("high", stage.workload.least())
    await stage.unblock(HALVES[0])
    await stage.wait_running("high", stage.workload.pods)

    async def low_waits() -> bool:
        return not any(pod["spec"].get("nodeName") for pod in await stage.pods("low"))

    await stage.stays("the gang of the lower priority waits", low_waits)


async def scales(stage: Stage) -> None:
    """Check that workers that are added start, and that removed ones go."""
    workload = stage.workload
    await stage.create("one")
    await stage.wait_running("one", workload.pods)
    assert workload.scaling is not None
    path, step, pods = workload.scaling.path, workload.scaling.step, workload.scaling.pods
    first = at(await stage.get("one"), path)
    await stage.change("one", path, value=first + step)
    await stage.wait_running("one", workload.pods + step * pods)
    await stage.change("one", path, value=first - 1)
    await stage.wait_running("one", workload.pods - pods)


async def suspends(stage: Stage) -> None:
    """Check that a suspended workload has no pods, and runs whole once it is resumed."""
    workload = stage.workload
    assert workload.suspend is not None
    await stage.create("one")
    await stage.wait_running("one", workload.pods)
    await stage.change("one", workload.suspend, value=True)

    async def gone() -> bool:
        return not await stage.pods("one")

    await stage.wait("no pod of a suspended workload is left", gone)
    await stage.change("one", workload.suspend, value=False)
    await stage.wait_running("one", workload.pods)


async def restarts(stage: Stage) -> None:
    """Check that restarts of the operator and of Pumice change nothing that runs or waits."""
    workload = stage.workload
    await stage.create("one")
    await stage.wait_running("one", workload.pods)
    await stage.create("big", workers=workload.too_many)
    await stage.wait_minimum("big", workload.least(workload.too_many))

    async def state() -> set[tuple[str, str]]:
        found = [*await stage.pods(), *await stage.api.items("podgroups", NAMESPACE)]
        return {(each["metadata"]["uid"], each["spec"].get("nodeName", "")) for each in found}

    seen: list[set[tuple[str, str]]] = []

    async def settled() -> bool:
        seen.append(await state())
        return len(seen) > _ALIKE and all(each == seen[-1] for each in seen[-_ALIKE:])

    await stage.wait("all pods are created", settled)
    before = seen[-1]
    await stage.restart()

    async def same() -> bool:
        return await state() == before

    await stage.stays("restarts change neither pods nor PodGroups", same)


async def deletion(stage: Stage) -> None:
    """Check that a workload deleted in the middle leaves neither pods nor PodGroups."""
    await stage.create("one")
    await stage.wait_running("one", stage.workload.pods)
    await stage.delete("one")
    await stage.wait_nothing()


Scenario = Callable[[Stage], Awaitable[None]]


def of(workload: Workload) -> dict[str, Scenario]:
    """Return the scenarios of a workload by their title."""
    found: dict[str, Scenario] = {"runs": runs, "waits whole": waits}
    if workload.prioritized:
        found["priority"] = priority
    if workload.scaling is not None:
        found["scales"] = scales
    if workload.suspend is not None:
        found["suspends"] = suspends
    return {**found, "restarts": restarts, "deletion": deletion}
