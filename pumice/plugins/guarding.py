"""The guard around plugins of other distributions: it checks their results.

The engine uses the results of its own plugins without checks. For other plugins, type, length and
range are checked here, so that a mistake is reported as the plugin's error and not later as one of
the engine. Where the plugin decides whether something is allowed, a failure counts as no: no node,
no admission, no victim. Where it states a preference, a failure has no effect.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import numpy as np

from pumice.plugins.contributions import (
    CrossNodePredicate,
    CrossNodeScorer,
    Predicate,
    PreemptRule,
    Rank,
    Trait,
    VictimRule,
)
from pumice.plugins.interface import Task
from pumice.plugins.values import (
    ClaimUse,
    CodeArray,
    Condition,
    CrossNodeScore,
    CrossNodeVerdict,
    DeviceUse,
    FloatArray,
    IntArray,
    Invalid,
    Opinion,
    QueueFigures,
    Reason,
    StartBlock,
    Vote,
)

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_R = TypeVar("_R", VictimRule, PreemptRule)
_MOST_REASONS: Final = 254

LAST: Final = (math.inf,)
"""The key in the place of one that an order function failed to give."""


class BadResult(TypeError):  # noqa: N818 - reads as the fact it states
    """A result that the engine cannot use; the message describes a usable one."""


class Guard:
    """Calls functions of one plugin and keeps the errors that they raise."""

    def __init__(
        self, plugin: str, failed: Callable[[str, Exception], None], unsteady: set[str]
    ) -> None:
        self.blame = f"plugin {plugin} failed"
        self.nodes = 0
        """Length of arrays over all nodes."""
        self.amounts = 0
        """Length of amounts arrays."""
        self._failed = failed
        self._unsteady = unsteady

    def attempt(self, point: str, call: Callable[[], _T]) -> _T | None:
        """Return the result of a call, None when it fails."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            self._unsteady.add(point)
            self._failed(point, error)
            return None

    def is_steady(self, point: str) -> bool:
        """Return whether the point never failed, so that its results may be cached."""
        return point not in self._unsteady

    def around(
        self,
        point: str,
        fn: Callable[..., object],
        checked: Callable[..., _T],
        instead: Callable[..., _T],
    ) -> Callable[..., _T]:
        """Return a function that returns what `fn` does, or `instead`.

        `checked` gets the result and the arguments, and returns it in its exact type. Raises
        `BadResult` when `fn` is no function.
        """
        if not callable(fn):
            raise BadResult(f"{point}: expected a function, got {fn!r}")

        def guarded(*arguments: Any) -> _T:  # noqa: ANN401 - whatever the point passes
            found = self.attempt(point, lambda: (checked(fn(*arguments), *arguments),))
            return instead(*arguments) if found is None else found[0]

        return guarded

    def no_limit(self) -> FloatArray:
        """Return an amounts array that limits nothing."""
        return np.full(self.amounts, np.inf)

    def reasons(self, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
        """Return the announced reasons, and last the one for a failure."""
        if len(reasons) > _MOST_REASONS or not all(isinstance(r, Reason) for r in reasons):
            raise BadResult(f"expected at most {_MOST_REASONS} Reasons, got {reasons!r}")
        return (*reasons, Reason(self.blame, resolvable=False))


def guarded_results(
    checked: Callable[..., Any],
    instead: object = None,
    *,
    made: Callable[..., object] | None = None,
) -> Callable[[Guard, str, _F], _F]:
    """Return a guard of functions, which checks results and replaces failures.

    `checked` gets the result and the arguments of the call. `made` gets the guard and the
    arguments, and returns the replacement; without it the replacement is `instead`.
    """

    def guarded(guard: Guard, point: str, fn: _F) -> _F:
        def stand_in(*arguments: object) -> object:
            return instead if made is None else made(guard, *arguments)

        return cast("_F", guard.around(point, fn, checked, stand_in))

    return guarded


# --- guards of contributions that are more than a function -----------------------------------


def guarded_predicate(guard: Guard, point: str, given: Predicate) -> Predicate:
    """Guard a predicate; a failure rejects all nodes of the call."""
    known = guard.reasons(given.reasons)
    failed = len(known)
    fn = guard.around(
        point,
        given.fn,
        lambda result, _, rows: codes(result, len(rows), failed - 1),
        lambda _, rows: np.full(len(rows), failed, dtype=np.uint8),
    )
    return given._replace(fn=fn, reasons=known, static=given.static and guard.is_steady(point))


def guarded_rank(guard: Guard, point: str, given: Rank) -> Rank:
    """Guard a ranking; a failure ranks all equally."""
    fn = guard.around(
        point,
        given.fn,
        lambda result, _, rows: ranks(result, len(rows)),
        lambda _, rows: np.zeros(len(rows), dtype=np.int64),
    )
    return given._replace(fn=fn)


def guarded_cross_node_predicate(
    guard: Guard, point: str, given: CrossNodePredicate
) -> CrossNodePredicate:
    """Guard a predicate over all nodes and the functions in its result; a failure rejects all."""
    known = guard.reasons(given.reasons)
    failed = len(known)

    def nowhere() -> CodeArray:
        return np.full(guard.nodes, failed, dtype=np.uint8)

    def checked(result: object, _: object) -> CrossNodeVerdict | None:
        if result is None:
            return None
        verdict = _of(CrossNodeVerdict, result, "a CrossNodeVerdict or None")
        ask = guard.around(
            point, verdict.codes, lambda found: codes(found, guard.nodes, failed - 1), nowhere
        )
        return verdict._replace(codes=ask, reasons=None, later=None)

    fn = guard.around(point, given.fn, checked, lambda _: CrossNodeVerdict(nowhere, steady=True))
    return CrossNodePredicate(fn, known)


def guarded_cross_node_score(guard: Guard, point: str, given: CrossNodeScorer) -> CrossNodeScorer:
    """Guard a score over all nodes and the functions in its result; a failure scores 0."""

    def checked(result: object, _: object) -> CrossNodeScore | None:
        if result is None:
            return None
        if not callable(result):
            raise BadResult(f"expected a function or None, got {result!r}")
        return guard.around(
            point,
            result,
            lambda found, mask: scores(found, len(mask)),
            lambda mask: np.zeros(len(mask)),
        )

    return given._replace(fn=guard.around(point, given.fn, checked, lambda _: None))


def guarded_trait(guard: Guard, point: str, given: Trait) -> Trait:
    """Guard a trait; a failure yields none."""
    return given._replace(fn=guard.around(point, given.fn, text, lambda _: ""))


def guarded_victim_rule(guard: Guard, point: str, given: _R) -> _R:
    """Guard a choice of victims; a failure names no task, one of `among` leaves no job out."""
    fn = guard.around(point, given.fn, victims, lambda *_: [])
    if given.among is None:
        return given._replace(fn=fn)
    return given._replace(fn=fn, among=guard.around(point, given.among, flag, lambda *_: True))


# --- checks of results: each function returns the result with its exact type -------------------


def _of(kind: type[_T], result: object, what: str) -> _T:
    if not isinstance(result, kind):
        raise BadResult(f"expected {what}, got {result!r}")
    return result


def nothing(_answer: object, *_asked: object) -> None:
    """Return None for any result."""


def flag(result: object, *_: object) -> bool:
    """Return a yes or no."""
    if not isinstance(result, bool | np.bool_):
        raise BadResult(f"expected True or False, got {result!r}")
    return bool(result)


def count(result: object, *_: object, most: int | None = None) -> int:
    """Return a number of tasks."""
    if isinstance(result, bool) or not isinstance(result, int | np.integer):
        raise BadResult(f"expected a number of tasks, got {result!r}")
    if result < 0 or (most is not None and result > most):
        raise BadResult(f"expected a number of tasks from 0 to {most}, got {result}")
    return int(result)


def allowance(result: object, _queue: object, _task_class: object, most: int) -> int:
    """Return how many of `most` tasks are allowed."""
    return count(result, most=most)


def key(result: object, *_: object) -> tuple[float, ...]:
    """Return an order key: a number, or a tuple of numbers, so that any two compare."""
    parts = result if isinstance(result, tuple) else (result,)
    for part in parts:
        if not isinstance(part, bool | int | float | np.number) or math.isnan(part):
            raise BadResult(f"expected a number or a tuple of numbers as order key, got {result!r}")
    return tuple(parts)


def vote(result: object, *_: object) -> Vote:
    """Return a ternary vote."""
    return _of(Vote, result, "a Vote")


def opinion(result: object, *_: object) -> Opinion:
    """Return a vote with its reason."""
    return _of(Opinion, result, "an Opinion")


def invalid(result: object, *_: object) -> Invalid | None:
    """Return an objection to a job, or None."""
    return None if result is None else _of(Invalid, result, "an Invalid or None")


def condition(result: object, *_: object) -> Condition | None:
    """Return a condition, or None."""
    return None if result is None else _of(Condition, result, "a Condition or None")


def hold(result: object, *_: object) -> StartBlock | None:
    """Return why a job may not start, or None; without nodes where it is tried once more."""
    return (
        None
        if result is None
        else _of(StartBlock, result, "a StartBlock or None")._replace(elsewhere=None)
    )


def blocked_by_failure(guard: Guard, _job: object) -> StartBlock:
    """Return why a job waits whose plugin failed to say whether it may start."""
    return StartBlock("plugin", guard.blame)


def text(result: object, *_: object) -> str:
    """Return a text."""
    return _of(str, result, "a str")


def optional_text(result: object, *_: object) -> str | None:
    """Return a text, or None."""
    return None if result is None else text(result)


def texts(result: object, *_: object) -> Mapping[str, str]:
    """Return a mapping of texts to texts."""
    if not isinstance(result, Mapping):
        raise BadResult(f"expected a mapping, got {result!r}")
    return {text(name): text(value) for name, value in result.items()}


def tasks(result: object, candidates: Sequence[Task]) -> list[Task]:
    """Return tasks, all of them among the candidates."""
    if not isinstance(result, Sequence):
        raise BadResult(f"expected a sequence of tasks, got {result!r}")
    known = {task.uid for task in candidates}
    for task in result:
        if getattr(task, "uid", None) not in known:
            raise BadResult(f"expected tasks out of those that were given, got {task!r}")
    return list(result)


def victims(result: object, _: object, candidates: Sequence[Task]) -> list[Task] | None:
    """Return tasks out of the candidates, or None."""
    return None if result is None else tasks(result, candidates)


def levels(result: object, *_: object) -> list[list[str]]:
    """Return names of HyperNodes, level by level."""
    if not isinstance(result, list) or not all(isinstance(level, list) for level in result):
        raise BadResult(f"expected a list of lists of names, got {result!r}")
    return [[text(name) for name in level] for level in result]


def numbers(result: object, _: object, names: Sequence[str]) -> list[float]:
    """Return finite numbers, one per name of the call."""
    return [float(number) for number in scores(result, len(names))]


def number(result: object, *_: object) -> float:
    """Return one finite number."""
    return float(scores([result], 1)[0])


def any_amounts(result: object, *_: object) -> FloatArray:
    """Return amounts, one per resource at most, some of them infinite."""
    array = np.asarray(result, dtype=np.float64)
    if array.ndim != 1 or np.isnan(array).any():
        raise BadResult(f"expected an amounts array, got {result!r}")
    return array


def figures(result: object, *_: object) -> list[QueueFigures]:
    """Return figures of queues."""
    return _all_of(QueueFigures, result, "QueueFigures")


def claim_uses(result: object, *_: object) -> list[ClaimUse]:
    """Return the uses of claims."""
    return _all_of(ClaimUse, result, "ClaimUses")


def device_uses(result: object, *_: object) -> list[DeviceUse]:
    """Return the uses of device claims."""
    return _all_of(DeviceUse, result, "DeviceUses")


def _all_of(kind: type[_T], result: object, what: str) -> list[_T]:
    if not isinstance(result, Iterable):
        raise BadResult(f"expected {what}, got {result!r}")
    return [_of(kind, one, what) for one in result]


def scores_of_rows(result: object, _: object, rows: Sequence[object]) -> FloatArray:
    """Return finite scores, one per row."""
    return scores(result, len(rows))


def scores_of_columns(
    result: object, _target: object, _task_class: object, columns: IntArray
) -> FloatArray | None:
    """Return finite scores, one per column, or None."""
    return None if result is None else scores(result, len(columns))


def zero_per_row(_guard: object, _task_class: object, rows: Sequence[object]) -> FloatArray:
    """Return a score of 0 for each row."""
    return np.zeros(len(rows))


def scores(result: object, length: int) -> FloatArray:
    """Return finite scores of this number."""
    array = np.asarray(result, dtype=np.float64)
    _of_length(array, length)
    if not np.isfinite(array).all():
        raise BadResult("expected finite scores, got some that are infinite or no number")
    return array


def ranks(result: object, length: int) -> IntArray:
    """Return whole numbers of at least 0, one per row."""
    array = np.asarray(result)
    _of_length(array, length)
    _whole(array)
    if length and array.min() < 0:
        raise BadResult(f"expected ranks of at least 0, got {array.min()}")
    return array.astype(np.int64)


def codes(result: object, length: int, reasons: int) -> CodeArray:
    """Return reason codes, one per row: 0, or the number of a reason that was announced."""
    array = np.asarray(result)
    _of_length(array, length)
    if array.dtype != np.bool_:
        _whole(array)
    if length and (array.min() < 0 or array.max() > reasons):
        raise BadResult(
            f"expected codes from 0 to {reasons}, the number of reasons, "
            f"got {array.min()} to {array.max()}"
        )
    return array.astype(np.uint8)


def _of_length(array: np.ndarray, length: int) -> None:
    if array.shape != (length,):
        raise BadResult(f"expected an array of shape ({length},), got {array.shape}")


def _whole(array: np.ndarray) -> None:
    if not np.issubdtype(array.dtype, np.integer):
        raise BadResult(f"expected an array of integers, got one of {array.dtype}")
