"""Extension points of subgroups and HyperNodes (SS05): their functions and how answers combine."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pumice.plugins import FloatArray, IntArray, Opinion, Vote
from services.scheduler.engine.points import OrderKey, Point, permitted
from services.scheduler.engine.seats import Seat
from services.scheduler.engine.subjobs import SubJob

if TYPE_CHECKING:
    from services.scheduler.engine.records import Job
    from services.scheduler.engine.shapes import TaskClass

FLAGS: Final = {
    "sub_job_ready": "enabledSubJobReady",
    "sub_job_pipelined": "enabledSubJobPipelined",
    "sub_job_order": "enabledSubJobOrder",
    "hypernode_score": "enabledHyperNodeOrder",
    "job_gradient": "enabledHyperNodeGradient",
    "sub_job_gradient": "enabledHyperNodeGradient",
    "group_score": "enableNodeOrder",
}
"""Extension point → flag (K02)."""

Gradient = list[list[str]]
"""HyperNodes to try: the first level that has a solution decides."""


class GroupPoints:
    """The extension points; `Hooks` is one."""

    def __init__(self) -> None:
        super().__init__()
        self.sub_job_ready: Point[Callable[[SubJob], int]] = Point()
        self.sub_job_pipelined: Point[Callable[[SubJob], Vote]] = Point()
        self.sub_job_order: Point[Callable[[SubJob], Any]] = Point()
        self.hypernode_score: Point[Callable[[SubJob, Sequence[str]], Sequence[float]]] = Point()
        self.job_gradient: Point[Callable[[Job, str, bool], Gradient]] = Point()
        self.sub_job_gradient: Point[Callable[[SubJob, str, bool], Gradient]] = Point()
        self.group_score: Point[Callable[[Seat, TaskClass, IntArray], FloatArray | None]] = Point()

    def sub_missing(self, sub: SubJob) -> int:
        """Return how many tasks a subgroup of a policy lacks at least; 0 = ready (SS07: AND)."""
        return max((fn(sub) for fn in self.sub_job_ready.all()), default=0)

    def sub_pipelined(self, sub: SubJob) -> bool:
        """Tell whether a subgroup may keep what it waits for (SS07: ternary)."""
        return permitted(self.sub_job_pipelined, lambda fn: Opinion(fn(sub))).vote >= 0

    def sub_key(self, sub: SubJob) -> OrderKey:
        """Return a subgroup's place: plugins in order, then its number, then its id (SS09)."""
        return (*[fn(sub) for fn in self.sub_job_order.all()], sub.match_index, sub.id)

    def hypernode_scores(self, sub: SubJob, names: Sequence[str]) -> list[float]:
        """Return the sum of the plugins' scores per HyperNode."""
        totals = [0.0] * len(names)
        for fn in self.hypernode_score.all():
            totals = [total + more for total, more in zip(totals, fn(sub, names), strict=True)]
        return totals

    def gradient_of_job(self, job: "Job", root: str, *, evict: bool = False) -> Gradient:
        """Return the HyperNodes below `root` to try for a job; the first plugin decides."""
        for fn in self.job_gradient.all():
            return fn(job, root, evict)
        return [[root]]

    def gradient_of_sub(self, sub: SubJob, root: str, *, evict: bool = False) -> Gradient:
        """Return the HyperNodes below `root` to try for a subgroup; the first plugin decides."""
        for fn in self.sub_job_gradient.all():
            return fn(sub, root, evict)
        return [[root]]

    def group_bias(self, seat: Seat, shape: "TaskClass", columns: IntArray) -> FloatArray | None:
        """Return what plugins add to the scores of these columns for one task of a group.

        None when no plugin tells the columns apart, however tasks are placed on them.
        """
        total: FloatArray | None = None
        for fn in self.group_score.all():
            part = fn(seat, shape, columns)
            if part is not None:
                total = part if total is None else total + part
        return total


class GroupRegistrar:
    """What one plugin adds to; `Registrar` is one."""

    def __init__(self, add: Callable[[str, object], None]) -> None:
        """Take what adds a function to an extension point if the plugin's flags say so."""
        self._to = add

    def sub_job_ready(self, fn: Callable[[Any], int]) -> None:
        """Say how many tasks a subgroup lacks."""
        self._to("sub_job_ready", fn)

    def sub_job_pipelined(self, fn: Callable[[Any], Vote]) -> None:
        """Vote on waiting subgroups."""
        self._to("sub_job_pipelined", fn)

    def sub_job_order(self, fn: Callable[[Any], Any]) -> None:
        """Order subgroups."""
        self._to("sub_job_order", fn)

    def hypernode_score(self, fn: Callable[[Any, Sequence[str]], Sequence[float]]) -> None:
        """Score HyperNodes."""
        self._to("hypernode_score", fn)

    def job_gradient(self, fn: Callable[[Any, str, bool], Gradient]) -> None:
        """Say which HyperNodes to try for a job."""
        self._to("job_gradient", fn)

    def sub_job_gradient(self, fn: Callable[[Any, str, bool], Gradient]) -> None:
        """Say which HyperNodes to try for a subgroup."""
        self._to("sub_job_gradient", fn)

    def group_score(self, fn: Callable[[Any, Any, IntArray], FloatArray | None]) -> None:
        """Score nodes by where the rest of the group is."""
        self._to("group_score", fn)
