"""Rules that combine the results of several plugins into one, after Volcano (SS06, SS07, SS09).

A rule is a function from the contributions to a point, by tier, to the combined result. The table
in docs/plugins.md shows the first line of its docstring.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from pumice.plugins.contributions import PreemptRule, Trait, VictimRule
from pumice.plugins.interface import PlacementTarget, Queue, Task, TaskClass
from pumice.plugins.values import (
    FloatArray,
    IntArray,
    Opinion,
    Vote,
)

_P = ParamSpec("_P")
_C = TypeVar("_C")
_S = TypeVar("_S")
_S_contra = TypeVar("_S_contra", contravariant=True)
_V = TypeVar("_V", bound=Task)


class Key(Protocol):
    """A value that order functions return: it can be compared with others of its kind."""

    def __lt__(self, other: Any, /) -> object: ...  # noqa: ANN401 - as in the standard library


OrderKey = tuple[Any, ...]
"""The smallest is served first; its last element is unique, so that no two are equal."""


class Tiers(Generic[_C]):
    """The contributions to one extension point, by tier."""

    def __init__(self) -> None:
        self.tiers: list[list[_C]] = []

    def add(self, tier: int, contribution: _C) -> None:
        """Add a contribution to a tier."""
        while len(self.tiers) <= tier:
            self.tiers.append([])
        self.tiers[tier].append(contribution)

    def __iter__(self) -> Iterator[_C]:
        return chain.from_iterable(self.tiers)

    def __bool__(self) -> bool:
        return any(self.tiers)


Each = Iterable
"""The contributions of all plugins, in the order of tiers."""


def each(contributions: Tiers[_C]) -> Each[_C]:
    """Use all results."""
    return contributions


def notified(fns: Tiers[Callable[_P, None]]) -> Callable[_P, None]:
    """Call all."""

    def notify(*args: _P.args, **kwargs: _P.kwargs) -> None:
        for tier in fns.tiers:
            for fn in tier:
                fn(*args, **kwargs)

    return notify


def first_objection(fns: Tiers[Callable[[_S], _C | None]]) -> Callable[[_S], _C | None]:
    """Take the first objection."""

    def objection(subject: _S) -> _C | None:
        for fn in fns:
            found = fn(subject)
            if found is not None:
                return found
        return None

    return objection


def in_turn(
    last: Callable[[_S], OrderKey],
) -> Callable[[Tiers[Callable[[_S], Key]]], Callable[[_S], OrderKey]]:
    """Return the rule with the keys that break ties at last; they end in something unique."""

    def combined(fns: Tiers[Callable[[_S], Key]]) -> Callable[[_S], OrderKey]:
        """Compare keys in turn, then age and name."""

        def key(subject: _S) -> OrderKey:
            return (*[fn(subject) for fn in fns], *last(subject))

        return key

    return combined


def pairs_in_turn(
    fns: Tiers[Callable[[Queue, Queue], Key]],
) -> Callable[[Queue, Queue], OrderKey]:
    """Compare keys in turn, then the reverse queue order."""
    return lambda victim, preemptor: tuple(fn(victim, preemptor) for fn in fns)


def most(fns: Tiers[Callable[[_S], int]]) -> Callable[[_S], int]:
    """Take the maximum."""
    return lambda subject: max((fn(subject) for fn in fns), default=0)


def any_of(fns: Tiers[Callable[_P, bool]]) -> Callable[_P, bool]:
    """Say yes if any does."""

    def one(*args: _P.args, **kwargs: _P.kwargs) -> bool:
        return any(fn(*args, **kwargs) for fn in fns)

    return one


def all_of(fns: Tiers[Callable[_P, bool]]) -> Callable[_P, bool]:
    """Say no if any does."""

    def every(*args: _P.args, **kwargs: _P.kwargs) -> bool:
        return all(fn(*args, **kwargs) for fn in fns)

    return every


def first_tier(fns: Tiers[Callable[[_S], bool]]) -> Callable[[_S], bool]:
    """Let the first tier with a function decide; any no is a no."""

    def decided(subject: _S) -> bool:
        for tier in fns.tiers:
            if tier:
                return all(fn(subject) for fn in tier)
        return False

    return decided


def least_allowed(
    fns: Tiers[Callable[[Queue, TaskClass, int], int]],
) -> Callable[[Queue, TaskClass, int], int]:
    """Take the minimum."""

    def allowed(queue: Queue, task_class: TaskClass, count: int) -> int:
        for fn in fns:
            count = fn(queue, task_class, count)
        return count

    return allowed


def by_opinion(fns: Tiers[Callable[[_S], Opinion]]) -> Callable[[_S], Opinion]:
    """Reject if any does; stop after a tier with a permission."""

    def opinion(subject: _S) -> Opinion:
        for tier in fns.tiers:
            permitted = False
            for fn in tier:
                found = fn(subject)
                if found.vote is Vote.REJECT:
                    return found
                permitted = permitted or found.vote is Vote.PERMIT
            if permitted:
                break
        return Opinion(Vote.PERMIT)

    return opinion


def by_vote(fns: Tiers[Callable[[_S], Vote]]) -> Callable[[_S], bool]:
    """Reject if any does; stop after a tier with a permission."""

    def permitted(subject: _S) -> bool:
        for tier in fns.tiers:
            votes = [fn(subject) for fn in tier]
            if Vote.REJECT in votes:
                return False
            if Vote.PERMIT in votes:
                break
        return True

    return permitted


class Victims(Protocol[_S_contra]):
    """Answers which of the candidates may go for a preemptor."""

    def __call__(self, preemptor: _S_contra, candidates: Sequence[_V]) -> list[_V]:
        """Return some of the candidates."""


def agreed_victims(
    fns: Tiers[Callable[[_S, Sequence[Task]], Sequence[Task] | None]],
) -> Victims[_S]:
    """Intersect lists in a tier; the first non-empty result decides.

    None abstains (SS06). ⚠ An empty list from a plugin ends the tier without result; an
    intersection that becomes empty starts anew with the next plugin's list.
    """

    def victims(preemptor: _S, candidates: Sequence[_V]) -> list[_V]:
        for tier in fns.tiers:
            agreed: list[_V] = []
            for fn in tier:
                proposed = cast("Sequence[_V] | None", fn(preemptor, candidates))
                if proposed is None:
                    continue
                if not proposed:
                    agreed = []
                    break
                if agreed:
                    wanted = {task.uid for task in proposed}
                    agreed = [task for task in agreed if task.uid in wanted]
                else:
                    agreed = list(proposed)
            if agreed:
                return agreed
        return []

    return victims


def agreed_by_rules(
    rules: Tiers[VictimRule] | Tiers[PreemptRule],
) -> Victims[Task]:
    """Intersect lists in a tier; the first non-empty result decides."""
    fns: Tiers[Callable[[Task, Sequence[Task]], Sequence[Task] | None]] = Tiers()
    fns.tiers = [[rule.fn for rule in tier] for tier in rules.tiers]
    return agreed_victims(fns)


class VictimTasks(Protocol):
    """Answers which of the running tasks should go, each once."""

    def __call__(self, running: Sequence[_V]) -> list[_V]:
        """Return the tasks."""


def first_named(fns: Tiers[Callable[[Sequence[Task]], Sequence[Task]]]) -> VictimTasks:
    """Unite lists in a tier; the first non-empty result decides.

    Tasks that were given come first, in that order; a plugin may name others as well.
    """

    def unwanted(running: Sequence[_V]) -> list[_V]:
        for tier in fns.tiers:
            named = {task.uid: cast("_V", task) for fn in tier for task in fn(running)}
            if named:
                at = {task.uid: place for place, task in enumerate(running)}
                return sorted(
                    named.values(), key=lambda task: (at.get(task.uid, len(at)), task.order())
                )
        return []

    return unwanted


def added_up(
    fns: Tiers[Callable[[_S, Sequence[str]], Sequence[float]]],
) -> Callable[[_S, Sequence[str]], list[float]]:
    """Add up the scores."""

    def scores(subject: _S, names: Sequence[str]) -> list[float]:
        totals = [0.0] * len(names)
        for fn in fns:
            totals = [total + more for total, more in zip(totals, fn(subject, names), strict=True)]
        return totals

    return scores


class Gradient(Protocol[_S_contra]):
    """Answers which HyperNodes at or below `root` to try: the first level that serves decides."""

    def __call__(self, subject: _S_contra, root: str, *, evict: bool = False) -> list[list[str]]:
        """Return HyperNodes, level by level."""


def first_gradient(fns: Tiers[Callable[[_S, str, bool], list[list[str]]]]) -> Gradient[_S]:
    """Use the first plugin only."""

    def gradient(subject: _S, root: str, *, evict: bool = False) -> list[list[str]]:
        for fn in fns:
            return fn(subject, root, evict)
        return [[root]]

    return gradient


def bias(
    fns: Tiers[Callable[[PlacementTarget, TaskClass, IntArray], FloatArray | None]],
) -> Callable[[PlacementTarget, TaskClass, IntArray], FloatArray | None]:
    """Add up the scores; None if no plugin distinguishes columns."""

    def score(
        target: PlacementTarget, task_class: TaskClass, columns: IntArray
    ) -> FloatArray | None:
        total: FloatArray | None = None
        for fn in fns:
            part = fn(target, task_class, columns)
            if part is not None:
                total = part if total is None else total + part
        return total

    return score


def last_result(fns: Tiers[Callable[[_S], float]]) -> Callable[[_S], float | None]:
    """Take the last result."""

    def last(subject: _S) -> float | None:
        result = None
        for fn in fns:
            result = fn(subject)
        return result

    return last


def collected(fns: Tiers[Callable[[_S], _C | None]]) -> Callable[[_S], list[_C]]:
    """Collect all results."""
    return lambda subject: [found for fn in fns if (found := fn(subject)) is not None]


def joined(
    fns: Tiers[Callable[[Task], Sequence[_C]]],
) -> Callable[[Task], tuple[_C, ...]]:
    """Collect all results."""
    return lambda task: tuple(use for fn in fns for use in fn(task))


def merged(fns: Tiers[Callable[[Task], Mapping[str, str]]]) -> Callable[[Task], dict[str, str]]:
    """Collect all; for equal names the later one counts."""
    return lambda task: {name: text for fn in fns for name, text in fn(task).items()}


def all_traits(traits: Tiers[Trait]) -> Callable[[Task], dict[str, str]]:
    """Collect all; for equal names the later one counts."""
    return lambda task: {name: fn(task) for name, fn in traits}
