"""`GuardedHooks`: extension points for code that may fail, each with the answer that stands in.

Where a plugin is asked for permission, its failure is a no: no node, no admission, no victim. Where
it is asked what is better, its failure is indifference. This is the one place where exceptions of
foreign code are caught, whatever they are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from pumice.plugins import (
    CodeArray,
    Condition,
    EvictionContext,
    FloatArray,
    Hooks,
    IntArray,
    Invalid,
    Opinion,
    Reason,
    Vote,
    WideScore,
    WideVerdict,
)
from services.scheduler.foreign import answers
from services.scheduler.foreign.answers import BadAnswer

_T = TypeVar("_T")
_Fn = Callable[..., Any]
_MOST_REASONS: Final = 254


class Guard:
    """Calls functions of one plugin and keeps what they raise."""

    def __init__(
        self, plugin: str, failed: Callable[[str, Exception], None], unsteady: set[str]
    ) -> None:
        self.blame = f"plugin {plugin} failed"
        self._failed = failed
        self._unsteady = unsteady

    def attempt(self, point: str, call: Callable[[], _T]) -> _T | None:
        """Return what a call returns, None when it fails."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            self._unsteady.add(point)
            self._failed(point, error)
            return None

    def is_steady(self, point: str) -> bool:
        """Tell whether the point never failed, so that its answers may be kept."""
        return point not in self._unsteady

    def around(
        self, point: str, fn: _Fn, checked: Callable[..., _T], instead: Callable[..., _T]
    ) -> Callable[..., _T]:
        """Return a function that answers as `fn` does, or `instead`.

        `checked` gets the answer and what was asked, and returns the answer made exact.
        """

        def guarded(*asked: Any) -> _T:  # noqa: ANN401 - whatever the point passes
            found = self.attempt(point, lambda: (checked(fn(*asked), *asked),))
            return instead(*asked) if found is None else found[0]

        return guarded


class GuardedHooks:
    """Takes a foreign plugin's functions; implements `pumice.plugins.Hooks`.

    Nothing reaches the engine before `hand_over`.
    """

    def __init__(self, hooks: Hooks, guard: Guard, *, nodes: int) -> None:
        self._hooks = hooks
        self._guard = guard
        self._nodes = nodes
        self._collected: list[Callable[[], None]] = []

    def hand_over(self) -> None:
        """Give everything to the engine."""
        for give in self._collected:
            give()

    def enabled(self, flag: str) -> bool:
        """See `pumice.plugins.Hooks`, as for all methods below."""
        return self._hooks.enabled(flag)

    def _simple(self, point: str, fn: _Fn, checked: Callable[[Any], Any], instead: object) -> None:
        """Guard a point whose answer needs no look at what was asked."""
        self._add(point, fn, lambda answer, *_: checked(answer), lambda *_: instead)

    def _add(
        self, point: str, fn: _Fn, checked: Callable[..., Any], instead: Callable[..., Any]
    ) -> None:
        if not callable(fn):
            raise BadAnswer(f"{point}: expected a function, got {fn!r}")
        guarded = self._guard.around(point, fn, checked, instead)
        self._collected.append(lambda: getattr(self._hooks, point)(guarded))

    # --- jobs, queues, tasks -----------------------------------------------------------------

    def job_valid(self, fn: Callable[[Any], Invalid | None]) -> None:
        """Refuse jobs; a failure refuses."""
        self._simple("job_valid", fn, answers.invalid, Invalid("PluginFailed", self._guard.blame))

    def job_order(self, fn: Callable[[Any], Any]) -> None:
        """Order jobs; a failure puts last."""
        self._simple("job_order", fn, answers.key, answers.LAST)

    def queue_order(self, fn: Callable[[Any], Any]) -> None:
        """Order queues; a failure puts last."""
        self._simple("queue_order", fn, answers.key, answers.LAST)

    def task_order(self, fn: Callable[[Any], Any]) -> None:
        """Order tasks; a failure puts last."""
        self._simple("task_order", fn, answers.key, answers.LAST)

    def sub_job_order(self, fn: Callable[[Any], Any]) -> None:
        """Order subgroups; a failure puts last."""
        self._simple("sub_job_order", fn, answers.key, answers.LAST)

    def victim_queue_order(self, fn: Callable[[Any, Any], Any]) -> None:
        """Order queues of victims; a failure puts last."""
        self._simple("victim_queue_order", fn, answers.key, answers.LAST)

    def job_ready(self, fn: Callable[[Any], int]) -> None:
        """Say how many tasks a job lacks; a failure says one."""
        self._simple("job_ready", fn, answers.count, 1)

    def sub_job_ready(self, fn: Callable[[Any], int]) -> None:
        """Say how many tasks a subgroup lacks; a failure says one."""
        self._simple("sub_job_ready", fn, answers.count, 1)

    def job_pipelined(self, fn: Callable[[Any], Vote]) -> None:
        """Vote on waiting jobs; a failure is a no."""
        self._simple("job_pipelined", fn, answers.vote, Vote.REJECT)

    def sub_job_pipelined(self, fn: Callable[[Any], Vote]) -> None:
        """Vote on waiting subgroups; a failure is a no."""
        self._simple("sub_job_pipelined", fn, answers.vote, Vote.REJECT)

    def job_starving(self, fn: Callable[[Any], bool]) -> None:
        """Tell starving jobs; a failure says that it is not."""
        self._simple("job_starving", fn, answers.flag, instead=False)

    def job_enqueueable(self, fn: Callable[[Any], Opinion]) -> None:
        """Vote on pending jobs; a failure is a no."""
        no = Opinion(Vote.REJECT, self._guard.blame)
        self._simple("job_enqueueable", fn, answers.opinion, no)

    def job_enqueued(self, fn: Callable[[Any], None]) -> None:
        """Hear of enqueued jobs."""
        self._simple("job_enqueued", fn, _nothing, None)

    def overused(self, fn: Callable[[Any], bool]) -> None:
        """Tell overused queues; a failure says that it is."""
        self._simple("overused", fn, answers.flag, instead=True)

    def allocatable(self, fn: Callable[[Any, Any, int], int]) -> None:
        """Limit what a queue gets; a failure gives nothing."""
        self._add(
            "allocatable",
            fn,
            lambda answer, _queue, _shape, most: answers.count(answer, most),
            lambda *_: 0,
        )

    def preemptive(self, fn: Callable[[Any, Sequence[Any]], bool]) -> None:
        """Limit what a queue may take; a failure is a no."""
        self._simple("preemptive", fn, answers.flag, instead=False)

    # --- victims -----------------------------------------------------------------------------

    def preemptable(self, fn: Callable[[Any, Sequence[Any]], Sequence[Any] | None]) -> None:
        """Propose victims of the same queue; a failure spares all."""
        self._add("preemptable", fn, _victims, _nobody)

    def reclaimable(self, fn: Callable[[Any, Sequence[Any]], Sequence[Any] | None]) -> None:
        """Propose victims of other queues; a failure spares all."""
        self._add("reclaimable", fn, _victims, _nobody)

    def evictable(
        self, fn: Callable[[EvictionContext, Sequence[Any]], Sequence[Any] | None]
    ) -> None:
        """Propose victims for whole gangs; a failure spares all."""
        self._add("evictable", fn, _victims, _nobody)

    def victim_tasks(self, fn: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        """Name tasks that should go; a failure spares all."""
        self._add("victim_tasks", fn, answers.tasks, _nobody)

    # --- nodes -------------------------------------------------------------------------------

    def predicate(
        self,
        fn: Callable[[Any, Any], CodeArray],
        *,
        reasons: Sequence[Reason],
        static: bool = False,
    ) -> None:
        """Refuse nodes; a failure refuses all that were asked about."""
        known = self._reasons(reasons)
        failed = len(known)
        guarded = self._guard.around(
            "predicate",
            fn,
            lambda answer, _, rows: answers.codes(answer, len(rows), failed - 1),
            lambda _, rows: np.full(len(rows), failed, dtype=np.uint8),
        )
        kept = static and self._guard.is_steady("predicate")
        self._collected.append(lambda: self._hooks.predicate(guarded, reasons=known, static=kept))

    def node_score(self, fn: Callable[[Any, Any], FloatArray]) -> None:
        """Score nodes; a failure scores 0."""
        self._add(
            "node_score",
            fn,
            lambda answer, _, rows: answers.scores(answer, len(rows)),
            lambda _, rows: np.zeros(len(rows)),
        )

    def node_rank(
        self, fn: Callable[[Any, Any], IntArray], *, weight: float, reverse: bool = False
    ) -> None:
        """Rank nodes; a failure ranks all alike, until a node changes."""
        guarded = self._guard.around(
            "node_rank",
            fn,
            lambda answer, _, rows: answers.ranks(answer, len(rows)),
            lambda _, rows: np.zeros(len(rows), dtype=np.int64),
        )
        self._collected.append(
            lambda: self._hooks.node_rank(guarded, weight=weight, reverse=reverse)
        )

    def wide_predicate(
        self, fn: Callable[[Any], WideVerdict | None], *, reasons: Sequence[Reason]
    ) -> None:
        """Refuse nodes for what happens elsewhere; a failure refuses all."""
        known = self._reasons(reasons)
        failed = len(known)

        def nowhere() -> CodeArray:
            return np.full(self._nodes, failed, dtype=np.uint8)

        def checked(answer: object, _: object) -> WideVerdict | None:
            if answer is None:
                return None
            if not isinstance(answer, WideVerdict):
                raise BadAnswer(f"expected a WideVerdict or None, got {answer!r}")
            ask = self._guard.around(
                "wide_predicate",
                answer.codes,
                lambda codes: answers.codes(codes, self._nodes, failed - 1),
                nowhere,
            )
            return answer._replace(codes=ask)

        guarded = self._guard.around(
            "wide_predicate", fn, checked, lambda _: WideVerdict(nowhere, steady=True)
        )
        self._collected.append(lambda: self._hooks.wide_predicate(guarded, reasons=known))

    def wide_score(self, fn: Callable[[Any], WideScore | None], *, weight: float) -> None:
        """Score candidates by what happens elsewhere; a failure scores 0."""

        def checked(answer: object, _: object) -> WideScore | None:
            if answer is None:
                return None
            if not callable(answer):
                raise BadAnswer(f"expected a function or None, got {answer!r}")
            return self._guard.around(
                "wide_score",
                answer,
                lambda scores, mask: answers.scores(scores, len(mask)),
                lambda mask: np.zeros(len(mask)),
            )

        guarded = self._guard.around("wide_score", fn, checked, lambda _: None)
        self._collected.append(lambda: self._hooks.wide_score(guarded, weight=weight))

    # --- groups ------------------------------------------------------------------------------

    def hypernode_score(self, fn: Callable[[Any, Sequence[str]], Sequence[float]]) -> None:
        """Score HyperNodes; a failure scores 0."""
        self._add(
            "hypernode_score",
            fn,
            lambda answer, _, names: answers.numbers(answer, len(names)),
            lambda _, names: [0.0] * len(names),
        )

    def job_gradient(self, fn: Callable[[Any, str, bool], list[list[str]]]) -> None:
        """Say which HyperNodes to try for a job; a failure tries none."""
        self._simple("job_gradient", fn, answers.levels, [])

    def sub_job_gradient(self, fn: Callable[[Any, str, bool], list[list[str]]]) -> None:
        """Say which HyperNodes to try for a subgroup; a failure tries none."""
        self._simple("sub_job_gradient", fn, answers.levels, [])

    def group_score(self, fn: Callable[[Any, Any, IntArray], FloatArray | None]) -> None:
        """Score columns by where the rest of a group is; a failure does not."""
        self._add(
            "group_score",
            fn,
            lambda answer, _seat, _shape, columns: (
                None if answer is None else answers.scores(answer, len(columns))
            ),
            lambda *_: None,
        )

    # --- what goes along ---------------------------------------------------------------------

    def judged(self, fn: Callable[[Any], Condition | None]) -> None:
        """Say what a PodGroup should show; a failure says nothing."""
        self._simple("judged", fn, answers.condition, None)

    def closed(self, fn: Callable[[], None]) -> None:
        """Hear of the end of the cycle."""
        self._simple("closed", fn, _nothing, None)

    def trait(self, name: str, fn: Callable[[Any], str]) -> None:
        """Tell tasks apart; a failure tells nothing."""
        guarded = self._guard.around(
            "trait", fn, lambda answer, _: answers.text(answer), lambda _: ""
        )
        self._collected.append(lambda: self._hooks.trait(name, guarded))

    def binding(self, fn: Callable[[Any], Mapping[str, str]]) -> None:
        """Add annotations with the binding; a failure adds none."""
        self._simple("binding", fn, answers.texts, {})

    def moved(self, fn: Callable[[Any, Any, IntArray, IntArray], None]) -> None:
        """Hear of placements with their nodes."""
        self._simple("moved", fn, _nothing, None)

    def changed(self, fn: Callable[[Any, Any, int], None]) -> None:
        """Hear of placements."""
        self._simple("changed", fn, _nothing, None)

    def _reasons(self, reasons: Sequence[Reason]) -> list[Reason]:
        """Return the announced reasons, and last the one for a failure."""
        if len(reasons) > _MOST_REASONS or not all(isinstance(r, Reason) for r in reasons):
            raise BadAnswer(f"expected at most {_MOST_REASONS} Reasons, got {reasons!r}")
        return [*reasons, Reason(self._guard.blame, resolvable=False)]


def _nothing(*_: object) -> None:
    return None


def _victims(answer: object, _: object, candidates: Sequence[Any]) -> list[Any] | None:
    return None if answer is None else answers.tasks(answer, candidates)


def _nobody(*_: object) -> list[Any]:
    return []
