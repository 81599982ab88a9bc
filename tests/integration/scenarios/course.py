"""The course of a job as a watcher sees it: every status that was written, in order.

Whoever waits for a phase by asking may miss it; whoever watches may not. So a course is exact: the
phases that a scenario names are all that there were, in that order, and in each of them some status
shows what the phase is about (`_SHOWS`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Final

from tests.integration.scenarios.scene import Object, Scene

BEGIN: Final = ("Pending", "Running")
AGAIN: Final = ("Restarting", *BEGIN)
ENDS: Final = {
    "AbortJob": ("Aborting", "Aborted"),
    "TerminateJob": ("Terminating", "Terminated"),
    "CompleteJob": ("Completing", "Completed"),
}
"""Action → the phases that it leads through."""

Status = Mapping[str, int]
"""Counts of a status, and `replicas` and `minAvailable` of the spec; 0 where nothing is said."""


def _is_killing(status: Status) -> bool:
    return status["terminating"] > 0


def _is_over(status: Status) -> bool:
    return status["pending"] == status["running"] == status["terminating"] == 0


def _has_room(status: Status) -> bool:
    begun = sum(status[field] for field in ("pending", "running", "succeeded", "failed"))
    return begun == 0 or status["replicas"] - status["terminating"] >= status["minAvailable"]


_SHOWS: Final[Mapping[str, Callable[[Status], bool]]] = {
    "Pending": _has_room,
    "Running": lambda status: status["running"] >= status["minAvailable"],
    "Restarting": _is_killing,
    "Aborting": _is_killing,
    "Completing": _is_killing,
    "Terminating": _is_killing,
    "Aborted": _is_over,
    "Completed": _is_over,
    "Terminated": _is_over,
    "Failed": _is_over,
}


class Course:
    """What has been seen of one job since the watch began."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._seen: list[tuple[str, Status]] = []

    def take(self, job: Object) -> None:
        """Note one state of the job, if it is the one and has a phase."""
        status, spec = job.get("status", {}), job["spec"]
        phase = status.get("state", {}).get("phase", "")
        if job["metadata"]["name"] != self._name or not phase:
            return
        fields = ("pending", "running", "succeeded", "failed", "terminating")
        counts = {field: status.get(field, 0) for field in fields}
        replicas = sum(task["replicas"] for task in spec["tasks"])
        more = {"replicas": replicas, "minAvailable": spec.get("minAvailable", 0)}
        self._seen.append((phase, {**counts, **more}))

    def phases(self) -> list[tuple[str, bool]]:
        """Return the phases so far, each with whether it has shown what it is about."""
        return [
            (phase, any(_SHOWS[phase](status) for _, status in statuses))
            for phase, statuses in groupby(self._seen, key=lambda seen: seen[0])
        ]

    def had(self, phase: str, **counts: int) -> bool:
        """Whether one status so far had this phase with these counts."""
        return any(
            seen == phase and all(status[field] == count for field, count in counts.items())
            for seen, status in self._seen
        )

    async def ends(self, *phases: str) -> None:
        """Wait until the last phases are these."""

        async def are() -> bool:
            return self.phases()[-len(phases) :] == [(phase, True) for phase in phases]

        await self._scene.wait(
            are, lambda: f"{self._name} ending with {phases}, it took {self.phases()}"
        )

    async def was(self, *phases: str, showing: bool = True) -> None:
        """Wait until the job has gone through these phases, and no others before or between.

        Without `showing` a phase need not show what it is about: there was nothing to kill.
        """

        async def gone_through() -> bool:
            found = self.phases()[: len(phases)]
            names = [phase for phase, _ in found]
            assert names == list(phases)[: len(names)], f"{self._name} took {self.phases()}"
            return len(found) == len(phases) and (not showing or all(shown for _, shown in found))

        await self._scene.wait(
            gone_through, lambda: f"{self._name} through {phases}, it took {self.phases()}"
        )


@asynccontextmanager
async def watched(scene: Scene, name: str) -> AsyncIterator[Course]:
    """Watch a job from before it is there."""
    course = Course(scene, name)
    listed = await scene.api.get("jobs", scene.namespace)

    async def follow() -> None:
        rv = listed["metadata"]["resourceVersion"]
        async for event in scene.api.follow("jobs", scene.namespace, rv):
            if event["type"] in {"ADDED", "MODIFIED"}:
                course.take(event["object"])

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow(), name=f"watch-{name}")
        yield course
        following.cancel()
