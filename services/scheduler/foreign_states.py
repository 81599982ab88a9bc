"""States of plugins of other distributions: a failure of one switches its plugin off.

What a state counts is wrong from the moment at which one of its calls fails half-way. So its first
failure is its last: the calls do nothing from then on, and the plugin is left out of every cycle
until the process restarts (ADR 12).
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

import msgspec
from typing_extensions import override

from pumice.plugins import Fold, Journal, PolicyState, PublishedBind, Task, TaskClass
from shared.api.kinds import KINDS
from shared.model.quantity import BadQuantity

Failed = Callable[[str, Exception], None]
"""Takes the method of a state that failed, and its error."""
_R = TypeVar("_R")
_NO_FOLDS: Final[Mapping[str, Fold]] = {}
_ENCODER: Final = msgspec.msgpack.Encoder()


def guarded(kind: type[PolicyState], *, plugin: str, failed: Failed) -> Callable[[], PolicyState]:
    """Return a factory of guarded objects of a class of states, which `Cluster.store` finds by it.

    Args:
        kind: the class that the plugin names in its `states`.
        plugin: the plugin's name, put in front of the state's name in recorded cycles.
        failed: called once per object, with its first failure.
    """
    name = f"{plugin}.{kind.name}" if kind.name else ""
    attributes = {"name": name, "failed": staticmethod(failed)}
    made: type[PolicyState] = type(kind.__name__, (_GuardedState, kind), attributes)

    def create() -> PolicyState:
        try:
            return made()
        except Exception as error:  # noqa: BLE001 - raised by code of others
            failed("__init__", error)
            return PolicyState()

    return create


class _GuardedState(PolicyState):
    """Passes each call to the class behind it in the method resolution order until one fails."""

    failed: Failed
    _is_off = False

    def _attempt(self, call: Callable[..., _R], *given: Any, instead: _R, **named: Any) -> _R:  # noqa: ANN401
        if self._is_off:
            return instead
        try:
            return call(*given, **named)
        except BadQuantity:
            raise
        except Exception as error:  # noqa: BLE001 - raised by code of others
            self._is_off = True
            self.failed(f"{type(self).__name__}.{call.__name__}", error)
            return instead

    @override
    def folds(self) -> Mapping[str, Fold]:
        given = self._attempt(self._checked_folds, instead=_NO_FOLDS)
        return {kind: self._guarded_fold(fold) for kind, fold in given.items()}

    def _checked_folds(self) -> Mapping[str, Fold]:
        given = super().folds()
        if unknown := given.keys() - KINDS.keys():
            raise ValueError(f"{', '.join(sorted(unknown))}: no such kind is on the bus")
        return given

    def _guarded_fold(self, fold: Fold) -> Fold:
        put = _amounts(fold.put)
        return Fold(
            lambda key, found: self._attempt(put, key, found, instead=None),
            lambda key: self._attempt(fold.remove, key, instead=None),
        )

    @override
    def demand(self, pod: Any) -> object:
        return self._attempt(self._encodable_demand, pod, instead=None)

    def _encodable_demand(self, pod: Any) -> object:  # noqa: ANN401 - decoded
        demand = _amounts(super().demand)(pod)
        if demand:
            _ENCODER.encode(demand)
        return demand

    @override
    def manages(self, resource: str) -> bool:
        return self._attempt(super().manages, resource, instead=False)

    @override
    def join(self, task: Task, pod: Any) -> None:
        self._attempt(super().join, task, pod, instead=None)

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        self._attempt(super().leave, task, gone=gone, instead=None)

    @override
    def count(self, task: Task, sign: int) -> None:
        self._attempt(super().count, task, sign, instead=None)

    @override
    def assume(self, bind: PublishedBind) -> None:
        self._attempt(super().assume, bind, instead=None)

    @override
    def lacking(self, task: Task) -> str:
        return self._attempt(super().lacking, task, instead="")

    @override
    def awaited(self, task: Task) -> str:
        return self._attempt(super().awaited, task, instead="")

    @override
    def bars(self, task_class: TaskClass) -> bool:
        return self._attempt(super().bars, task_class, instead=False)

    @override
    def begin(self, journal: Journal) -> None:
        self.journal = journal
        self._attempt(super().begin, journal, instead=None)

    @override
    def dump(self) -> object:
        return self._attempt(self._encodable_dump, instead=None)

    def _encodable_dump(self) -> object:
        dumped = super().dump()
        _ENCODER.encode(dumped)
        return dumped

    @override
    def restore(self, kept: Any) -> None:
        self._attempt(super().restore, kept, instead=None)


def _amounts(call: Callable[..., _R]) -> Callable[..., _R]:
    """Let a ValueError of a call say what it says of built-in states: an amount is impossible."""

    @wraps(call)
    def checked(*given: Any) -> _R:  # noqa: ANN401
        try:
            return call(*given)
        except ValueError as error:
            raise BadQuantity(str(error)) from error

    return checked
