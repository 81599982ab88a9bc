"""What a scenario may do and ask in its namespace."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pumice.local.process import tail
from tests.support import world
from tests.support.api import Api, ApiError
from tests.support.wait import until

Object = dict[str, Any]

DEADLINE_S = 150.0
"""How long a scenario waits for one thing. A busy machine is no failure; and the garbage collector
of a new cluster learns our kinds after half a minute, and tries what it missed once more after as
long again."""
_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
_QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
FINISHED = ("Succeeded", "Failed")


def on(event: str, action: str, **more: object) -> Object:
    """Return a lifecycle policy."""
    return {"event": event, "action": action, **more}


def on_exit(code: int, action: str) -> Object:
    """Return a lifecycle policy for an exit code."""
    return {"exitCode": code, "action": action}


def task(name: str, replicas: int, *, cpu: str = "100m", **extra: Any) -> Object:
    """Return a task of small pods that run until they are told to end."""
    made = world.task(name, replicas, cpu=cpu, memory="16Mi", **extra)
    del made["template"]["spec"]["tolerations"]
    return made


def ending(code: int = 0, after_s: int = 0) -> dict[str, str]:
    """Return the annotations of a pod that ends by itself."""
    return {"pumice.dev/run-seconds": str(after_s), "pumice.dev/exit-code": str(code)}


def uids(pods: Mapping[str, Object]) -> dict[str, str]:
    """Return the uid of each pod."""
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


class Scene:
    """One namespace of a real cluster on which the whole system runs."""

    def __init__(self, api: Api, namespace: str, logs: Path) -> None:
        self.api = api
        self.namespace = namespace
        self._logs = logs
        self._cluster: list[tuple[str, str]] = []

    # --- doing -------------------------------------------------------------------------------

    async def submit(self, name: str, *tasks: Object, **spec: Any) -> Object:
        """Create a job."""
        return await self.api.create("jobs", world.job(name, *tasks, **spec), self.namespace)

    async def running(self, name: str, *tasks: Object, **spec: Any) -> dict[str, Object]:
        """Create a job and wait until it runs with all its pods; return the pods."""
        await self.submit(name, *tasks, **spec)
        await self.phase(name, "Running")
        return await self.pods(sum(t["replicas"] for t in tasks), phase="Running")

    async def refused_or_held(self, name: str, *tasks: Object, naming: str, **spec: Any) -> bool:
        """Submit a job that is wrong: the webhook refuses it, or the controller holds it.

        Either way what is wrong is named. Returns whether the job is there, held.
        """
        try:
            await self.submit(name, *tasks, **spec)
        except ApiError as refused:
            if naming in str(refused):
                return False
            raise

        async def named() -> bool:
            state = (await self.job(name)).get("status", {}).get("state", {})
            return state.get("phase") == "Pending" and naming in state.get("message", "")

        await self.wait(named, f"{naming!r} in the state of {name}")
        every = await self.api.items("pods", self.namespace)
        assert not [pod for pod in every if pod["metadata"]["name"].startswith(f"{name}-")]
        return True

    async def deleted_or_refused(self, plural: str, name: str, *, naming: str) -> bool:
        """Delete an object of the cluster; return whether it was, or a webhook said why not."""
        try:
            await self.api.delete(plural, "", name)
        except ApiError as refused:
            if naming in str(refused):
                return False
            raise
        return True

    async def end(self, pod: str, code: int = 0) -> None:
        """Let the kubelet report that a running pod has ended."""
        body = {"metadata": {"annotations": ending(code)}}
        await self.api.patch("pods", self.namespace, pod, body)

    async def evict(self, pod: str) -> None:
        """Delete a pod, as an eviction does."""
        await self.api.delete("pods", self.namespace, pod, 0)

    async def crash(self, pod: str, times: int) -> None:
        """Let the kubelet report that the container was restarted so often."""
        found = await self.api.get("pods", self.namespace, pod)
        statuses = found["status"]["containerStatuses"]
        statuses[0]["restartCount"] = times
        body = {"status": {"containerStatuses": statuses}}
        await self.api.patch("pods", self.namespace, pod, body, sub="status")

    async def order(self, action: str, name: str, *, kind: Object | None = None) -> None:
        """Issue a Command, as vcctl does."""
        plural = "queues" if kind is _QUEUE else "jobs"
        found = await self.api.get(plural, self.namespace, name)
        body = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"generateName": f"{name}-"},
            "action": action,
            "target": {**(kind or _JOB), "name": name, "uid": found["metadata"]["uid"]},
        }
        await self.api.create("commands", body, self.namespace)

    async def order_queue(self, action: str, name: str) -> None:
        """Issue a Command to a queue."""
        await self.order(action, name, kind=_QUEUE)

    async def change(self, name: str, **spec: Any) -> None:
        """Patch the spec of a job."""
        await self.api.patch("jobs", self.namespace, name, {"spec": spec})

    async def scale(self, name: str, **replicas: int) -> None:
        """Set the replicas of tasks, and minAvailable along with them."""
        job = await self.job(name)
        tasks = job["spec"]["tasks"]
        for entry in tasks:
            if entry["name"] in replicas:
                entry["replicas"] = entry["minAvailable"] = replicas[entry["name"]]
        await self.change(name, tasks=tasks, minAvailable=sum(t["replicas"] for t in tasks))

    async def queue(self, name: str, **spec: Any) -> str:
        """Create a queue; return its name, which is the namespace's own."""
        body = self.queue_body(name, **spec)
        full = body["metadata"]["name"]
        await self.api.create("queues", body)
        self._cluster.append(("queues", full))
        await self.queue_state(name, "Open")
        return full

    def queue_body(self, name: str, **spec: Any) -> Object:
        """Return a queue of this scene as it is created."""
        full = f"{self.namespace}-{name}"
        return {**_QUEUE, "metadata": {"name": full}, "spec": {"reclaimable": True, **spec}}

    async def priority(self, name: str, value: int) -> str:
        """Create a priority class; return its name."""
        full = f"{self.namespace}-{name}"
        await self.api.create("priorityclasses", {"metadata": {"name": full}, "value": value})
        self._cluster.append(("priorityclasses", full))
        return full

    async def node(self, name: str, *, cpu: str, pods: str = "110", **labels: str) -> str:
        """Add a node that only tasks of `at_home` use; return its name."""
        full = f"{self.namespace}-{name}"
        body = world.node(full, cpu=cpu, memory="64Gi", pods=pods)
        body["metadata"]["labels"] |= {"home": self.namespace, **labels}
        taint = {"key": "home", "value": self.namespace, "effect": "NoSchedule"}
        body["spec"] = {"taints": [taint]}
        await self.api.create("nodes", body)
        self._cluster.append(("nodes", full))
        return full

    def at_home(self, name: str, replicas: int, *, cpu: str = "1", **extra: Any) -> Object:
        """Return a task whose pods go to the scene's own nodes."""
        made = task(name, replicas, cpu=cpu, **extra)
        spec = made["template"]["spec"]
        spec["nodeSelector"] = {"home": self.namespace}
        spec["tolerations"] = [{"key": "home", "value": self.namespace, "effect": "NoSchedule"}]
        return made

    def also(self, plural: str, name: str) -> None:
        """Remember an object of the whole cluster, which is removed in the end."""
        self._cluster.append((plural, name))

    # --- asking ------------------------------------------------------------------------------

    async def job(self, name: str) -> Object:
        """Return a job."""
        return await self.api.get("jobs", self.namespace, name)

    async def group(self, job: str) -> Object:
        """Return the PodGroup of a job once it is there."""

        async def found() -> Object | None:
            groups = await self.api.items("podgroups", self.namespace)
            return next((g for g in groups if g["metadata"]["name"].startswith(f"{job}-")), None)

        return await self.wait(found, f"the PodGroup of {job}")

    async def phase(self, name: str, phase: str, **status: object) -> Object:
        """Wait until a job is in a phase, with these fields of its status; return the job.

        A tuple allows any of its values.
        """
        seen: Object = {}

        async def found() -> Object | None:
            nonlocal seen
            job = await self.job(name)
            seen = job.get("status", {})
            good = seen.get("state", {}).get("phase") == phase
            for field, value in status.items():
                allowed = value if isinstance(value, tuple) else (value,)
                good &= seen.get(field, 0) in allowed
            return job if good else None

        return await self.wait(found, lambda: f"job {name} {phase} {status}, it says {seen}")

    async def pods(
        self, count: int | None = None, *, phase: str | tuple[str, ...] = "", task: str = ""
    ) -> dict[str, Object]:
        """Return the pods that are not being deleted, once there are just so many of them."""
        seen: dict[str, Object] = {}

        async def found() -> bool:
            nonlocal seen
            seen = {
                pod["metadata"]["name"]: pod
                for pod in await self.api.items("pods", self.namespace)
                if "deletionTimestamp" not in pod["metadata"]
                and (not phase or pod["status"]["phase"] in phase)
                and (not task or pod["metadata"]["annotations"]["volcano.sh/task-spec"] == task)
            }
            return count is None or len(seen) == count

        def told() -> str:
            there = {name: pod["status"]["phase"] for name, pod in seen.items()}
            return f"{count} pods {phase} {task}, there are {there}"

        await self.wait(found, told)
        return seen

    async def queue_state(self, name: str, state: str) -> Object:
        """Wait until a queue is in a state."""
        full = f"{self.namespace}-{name}"

        async def found() -> Object | None:
            queue = await self.api.get("queues", "", full)
            return queue if queue.get("status", {}).get("state") == state else None

        return await self.wait(found, f"queue {name} {state}")

    async def condition(self, job: str, kind: str, *, reason: str = "", text: str = "") -> Object:
        """Wait until the PodGroup of a job has a condition; return the condition."""
        seen: list[Object] = []

        async def found() -> Object | None:
            nonlocal seen
            seen = (await self.group(job)).get("status", {}).get("conditions", [])
            return next(
                (
                    c
                    for c in seen
                    if c["type"] == kind
                    and c["status"] == "True"
                    and (not reason or c["reason"] == reason)
                    and text in c["message"]
                ),
                None,
            )

        return await self.wait(found, lambda: f"condition {kind} {reason} {text!r}, seen {seen}")

    async def event(self, reason: str, *, about: str = "", text: str = "") -> Object:
        """Wait for a Kubernetes Event."""
        seen: list[str] = []

        async def found() -> Object | None:
            nonlocal seen
            events = await self.api.items("events", self.namespace)
            seen = [f"{e['involvedObject']['name']} {e['reason']} {e['message']}" for e in events]
            return next(
                (
                    e
                    for e in events
                    if e["reason"] == reason
                    and e["involvedObject"]["name"].startswith(about)
                    and text in e["message"]
                ),
                None,
            )

        return await self.wait(found, lambda: f"event {reason} {text!r} on {about}, seen {seen}")

    async def gone(self, plural: str, name: str) -> None:
        """Wait until an object is there no more."""

        async def found() -> bool:
            try:
                await self.api.get(plural, self.namespace, name)
            except ApiError as error:
                return error.status == 404
            return False

        await self.wait(found, f"{plural} {name} gone")

    async def groups_gone(self) -> None:
        """Wait until no PodGroup is left."""

        async def found() -> bool:
            return not await self.api.items("podgroups", self.namespace)

        await self.wait(found, "no PodGroup")

    async def wait(self, probe: Callable[[], Awaitable[Any]], what: str | Callable[[], str]) -> Any:
        """Wait for a probe; a failure shows the last lines of the services."""

        def told() -> str:
            return f"{what if isinstance(what, str) else what()}\n{self._told()}"

        return await until(probe, deadline_s=DEADLINE_S, describe=told, every_s=0.2)

    def _told(self) -> str:
        return "\n".join(
            line
            for file in sorted(self._logs.glob("*.log"))
            for line in tail(file, lines=400)
            if self.namespace in line
        )[-4000:]

    # --- the end -----------------------------------------------------------------------------

    async def clear(self) -> None:
        """Remove what the scenario made; the namespace goes in the background."""
        for plural in ("jobs", "podgroups"):
            for item in await self.api.items(plural, self.namespace):
                await self._delete(plural, item["metadata"]["name"], self.namespace)
        for pod in await self.api.items("pods", self.namespace):
            await self._delete("pods", pod["metadata"]["name"], self.namespace, 0)
        for plural, name in self._cluster:
            await self._delete(plural, name)
        await self._delete("namespaces", self.namespace)

    async def _delete(
        self, plural: str, name: str, namespace: str = "", grace_s: int | None = None
    ) -> None:
        with contextlib.suppress(ApiError):  # gone already, or refused: the namespace goes anyway
            await self.api.delete(plural, namespace, name, grace_s)
