"""What the restart tests do and ask: bursts of gangs, and whether all got where they should."""

from tests.support import world
from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.invariants import Watcher
from tests.support.wait import until

GANGS = 10
GANG_SIZE = 10


class Scene:
    """One namespace, the services, and the judge."""

    def __init__(self, *, plane, api: Api, judge: Watcher, services: Fleet, namespace: str) -> None:
        self.plane = plane
        self.api = api
        self.judge = judge
        self.services = services
        self.namespace = namespace
        self.expected: dict[str, int] = {}
        self.uids: set[str] = set()

    async def submit(self, name: str, size: int, **job_fields) -> None:
        """Create one gang of `size` pods of one CPU each."""
        cpu = job_fields.pop("cpu", "1")
        body = world.job(name, world.task("w", size, cpu=cpu), **job_fields)
        await self.api.create("jobs", body, self.namespace)
        self.expected[name] = size

    async def burst(self, gangs: int = GANGS, size: int = GANG_SIZE, cpu: str = "1") -> None:
        """Create gangs that together have 100 pods, or as many as is said."""
        for i in range(gangs):
            await self.submit(f"gang-{i}", size, cpu=cpu)

    @property
    def total(self) -> int:
        """Return how many pods the submitted jobs have."""
        return sum(self.expected.values())

    def bound(self) -> int:
        """Return how many pods of this scene have a node."""
        return len(self.judge.bound(self.namespace))

    async def some_bound(self, count: int = 10) -> None:
        """Wait until the burst is under way: `count` pods bound."""
        await until(lambda: self.bound() >= count, deadline_s=40, describe=self._seen)

    async def all_bound(self, deadline_s: float = 60) -> None:
        """Wait until each submitted gang is whole on nodes, with as many pods as it should have."""
        await until(lambda: self.bound() == self.total, deadline_s=deadline_s, describe=self._seen)

    async def all_running(self, deadline_s: float = 60) -> None:
        """Wait until all jobs say Running, with all their pods."""
        await self.all_bound(deadline_s)

        async def phases() -> bool:
            jobs = await self.api.items("jobs", self.namespace)
            self._phases = {
                j["metadata"]["name"]: j.get("status", {}).get("state", {}).get("phase")
                for j in jobs
            }
            return all(self._phases.get(name) == "Running" for name in self.expected)

        await until(phases, deadline_s=deadline_s, describe=lambda: f"{self._phases}{self._seen()}")

    async def job(self, name: str) -> dict:
        """Return one job."""
        return await self.api.get("jobs", self.namespace, name)

    def pods(self, gang: str) -> list[dict]:
        """Return the pods of one gang as the judge saw them last."""
        prefix = f"{self.namespace}/{gang}-"
        return [pod for key, pod in self.judge.pods.items() if key.startswith(prefix)]

    def assert_nothing_was_broken(self) -> None:
        """Fail when the judge saw a node over capacity, a pod that moved, or half a gang."""
        assert not self.judge.violations, self.judge.violations[:5]
        minimum = {}
        for pod in self.judge.pods.values():
            notes = pod["metadata"].get("annotations", {})
            job = notes.get("volcano.sh/job-name")
            if pod["metadata"]["namespace"] == self.namespace and job in self.expected:
                group = f"{self.namespace}/{notes['scheduling.k8s.io/group-name']}"
                minimum[group] = self.expected[job]
        assert not self.judge.partial_gangs(minimum), self.judge.partial_gangs(minimum)

    def _seen(self) -> str:
        pods = [key for key in self.judge.pods if key.startswith(f"{self.namespace}/")]
        return (
            f"{self.bound()} of {self.total} bound, {len(pods)} pods there; "
            f"violations {self.judge.violations[:3]}\n{self.services.logs()}"
        )

    async def clear(self) -> None:
        """Remove what the test made and wait until it is gone.

        The next test finds the nodes free, and no service of it passes its fault point for an
        object of this one.
        """
        await self.api.clear("jobs", "podgroups", "pods", namespace=self.namespace)
