"""Jobs that are there all the time: they run, wait or rest while the services are replaced."""

from tests.support import world
from tests.support.wait import until
from tests.upgrade.installation import NODES, SLOW_S, Installation

WHOLE = "16"
RUNNING, FILLING, WAITING, STOPPED = "steady", "filling", "waiting", "stopped"
"""Names: those of the load begin with `r`, and are cleared away by it."""
FILLED = NODES // 2
LONG = {"pumice.dev/run-seconds": "7200"}
SHORT = {"pumice.dev/run-seconds": "1"}


class Standing:
    """One job that runs, one that waits for the room of another, one that is stopped."""

    def __init__(self, here: Installation) -> None:
        self._here = here
        self._before: dict[str, tuple[str, str]] = {}

    async def begin(self) -> None:
        """Submit the jobs, and return when each is in its state."""
        plugins = {"env": [], "svc": [], "ssh": []}
        await self._submit(RUNNING, 3, cpu="1", notes=LONG, plugins=plugins)
        await self._submit(FILLING, FILLED, cpu=WHOLE, notes=LONG)
        await self._submit(STOPPED, 2, cpu="1", notes=LONG)
        for job, size in ((RUNNING, 3), (FILLING, FILLED), (STOPPED, 2)):
            await self._until(lambda job=job, size=size: len(self._placed(job)) == size, job)
        await self._submit(WAITING, NODES - FILLED + 1, cpu=WHOLE, notes=SHORT)
        await self._order(STOPPED, "AbortJob")
        await self._until(lambda: self._phase(STOPPED) == "Aborted", STOPPED)
        self._before = self._placed(RUNNING) | self._placed(FILLING)

    def moved(self) -> list[str]:
        """Return what is not as it was of the jobs that run."""
        now = self._placed(RUNNING) | self._placed(FILLING)
        return [
            f"{pod} is {now.get(pod, 'gone')} and was {place}"
            for pod, place in self._before.items()
            if now.get(pod) != place
        ] + ([f"{WAITING} has {self._placed(WAITING)}"] if self._placed(WAITING) else [])

    async def end(self) -> None:
        """Make room, let the stopped one go on, and return when both got what they waited for."""
        await self._here.api.delete("jobs", self._here.namespace, FILLING)
        await self._order(STOPPED, "ResumeJob")
        await self._until(lambda: self._phase(WAITING) == "Completed", WAITING)
        await self._until(lambda: self._phase(STOPPED) == "Running", STOPPED)

    async def _submit(self, name: str, size: int, *, cpu: str, notes: dict, **fields) -> None:
        task = world.task("w", size, cpu=cpu, annotations=notes)
        self._here.judge.expect(f"{self._here.namespace}/{name}", size)
        await self._here.api.create("jobs", world.job(name, task, **fields), self._here.namespace)

    async def _order(self, job: str, action: str) -> None:
        found = await self._here.api.get("jobs", self._here.namespace, job)
        order = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": f"{job}-{action.lower()}"},
            "action": action,
            "target": {
                "apiVersion": found["apiVersion"],
                "kind": "Job",
                "name": job,
                "uid": found["metadata"]["uid"],
                "controller": True,
            },
        }
        await self._here.api.create("commands", order, self._here.namespace)

    def _placed(self, job: str) -> dict[str, tuple[str, str]]:
        """Return pod → uid and node of those pods of a job that have one."""
        prefix = f"{self._here.namespace}/{job}-"
        return {
            key: (pod["metadata"]["uid"], pod["spec"]["nodeName"])
            for key, pod in self._here.judge.pods.items()
            if key.startswith(prefix) and pod["spec"].get("nodeName")
        }

    def _phase(self, job: str) -> str:
        return self._here.judge.phase(f"{self._here.namespace}/{job}")

    async def _until(self, probe, job: str) -> None:
        await until(probe, deadline_s=SLOW_S, describe=lambda: f"{job}: {self._phase(job)}")
