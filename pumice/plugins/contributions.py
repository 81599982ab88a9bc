"""Contributions to extension points that are more than a function, and how plugins make them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pumice.plugins.interface import Job, NodeRows, Task, TaskClass
from pumice.plugins.values import (
    CodeArray,
    CrossNodeScore,
    CrossNodeVerdict,
    IntArray,
    Reason,
)


class Predicate(NamedTuple):
    """A registered predicate."""

    fn: Callable[[TaskClass, NodeRows], CodeArray]
    reasons: tuple[Reason, ...]
    static: bool
    identity: str = ""
    """Key under which its answers are cached, in later cycles too; unique per predicate."""


class Rank(NamedTuple):
    """A registered ranking that is normalised over the candidates."""

    fn: Callable[[TaskClass, NodeRows], IntArray]
    weight: float
    reverse: bool
    identity: str = ""
    """As for predicates."""


class CrossNodePredicate(NamedTuple):
    """A registered predicate whose result for one node depends on other nodes."""

    fn: Callable[[TaskClass], CrossNodeVerdict | None]
    reasons: tuple[Reason, ...]


class CrossNodeScorer(NamedTuple):
    """A registered score over all candidates."""

    fn: Callable[[TaskClass], CrossNodeScore | None]
    weight: float


class VictimRule(NamedTuple):
    """A registered choice of victims."""

    fn: Callable[[Task, Sequence[Task]], Sequence[Task] | None]
    among: Callable[[Job], bool] | None
    """Whether the choice could name any task of a job as things are; None: of any job."""


class PreemptRule(NamedTuple):
    """A registered choice of victims within a queue."""

    fn: Callable[[Task, Sequence[Task]], Sequence[Task] | None]
    among: Callable[[Job, Job], bool] | None
    """Whether the choice for a task of the first job could name any task of the second as things
    are; None: of any job."""


class Trait(NamedTuple):
    """A registered fact about tasks that their pods do not state."""

    name: str
    fn: Callable[[Task], str]


def predicate(
    fn: Callable[[TaskClass, NodeRows], CodeArray],
    *,
    reasons: Sequence[Reason],
    static: bool = False,
) -> Predicate:
    """Give each row 0 (fits) or n: the n-th reason, from 1.

    `static` promises that the answer depends on the node's object alone (labels, taints), so that
    it is computed once per class and node version.
    """
    return Predicate(fn, tuple(reasons), static)


def rank(
    fn: Callable[[TaskClass, NodeRows], IntArray], *, weight: float, reverse: bool = False
) -> Rank:
    """Give each row a raw number ≥ 0 that depends on the node's object alone.

    The engine scales it to 0…100 over the candidates (reversed when less is better), as Kubernetes
    normalises, and multiplies by `weight`.
    """
    return Rank(fn, weight, reverse)


def cross_node_predicate(
    fn: Callable[[TaskClass], CrossNodeVerdict | None], *, reasons: Sequence[Reason]
) -> CrossNodePredicate:
    """Refuse nodes because of pods on other nodes (topology domains)."""
    return CrossNodePredicate(fn, tuple(reasons))


def cross_node_score(
    fn: Callable[[TaskClass], CrossNodeScore | None], *, weight: float
) -> CrossNodeScorer:
    """Score nodes by pods on other nodes; None where it does not concern the class."""
    return CrossNodeScorer(fn, weight)


def victim_rule(
    fn: Callable[[Task, Sequence[Task]], Sequence[Task] | None],
    *,
    among: Callable[[Job], bool] | None = None,
) -> VictimRule:
    """Choose victims for a task among those that are offered.

    `among` promises, of a rule that never abstains, that no task of a job is chosen for which it
    is false as things are. Nodes without tasks of other jobs are then not searched.
    """
    return VictimRule(fn, among)


def preempt_rule(
    fn: Callable[[Task, Sequence[Task]], Sequence[Task] | None],
    *,
    among: Callable[[Job, Job], bool] | None = None,
) -> PreemptRule:
    """Choose victims for a task among those of its queue that are offered.

    Where `among(preemptor, job)` is false, `fn` must choose no task of `job` for a task of
    `preemptor`, a job as well, as things stand at that moment. Only a rule that never abstains
    may say so. A search for victims passes over such jobs, and a job that waits for victims is not
    tried as long as it has none but such.
    """
    return PreemptRule(fn, among)


def trait(name: str, fn: Callable[[Task], str]) -> Trait:
    """Tell pending tasks apart by more than their pods."""
    return Trait(name, fn)
