"""`Point`: one extension point, as a row of the table in `pumice.plugins.points`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from pumice.plugins import combining
from pumice.plugins.combining import Tiers
from pumice.plugins.guarding import Guard, guarded_results
from pumice.plugins.interface import Task

_P = ParamSpec("_P")
_C = TypeVar("_C")
_A = TypeVar("_A")
_F = TypeVar("_F", bound=Callable[..., Any])


class Point(Generic[_P, _C, _A]):
    """One extension point: `_P` is how a plugin contributes, `_C` what, `_A` the combined answer.

    On `Hooks` it is the method that contributes, on the engine's side the combined answer.
    """

    name: str

    def __init__(
        self,
        volcano: str,
        flag: str,
        about: str,
        *,
        takes: Callable[_P, _C],
        together: Callable[[Tiers[_C]], _A],
        guarded: Callable[[Guard, str, _C], _C],
        failing: str,
    ) -> None:
        self.volcano = volcano
        """Volcano's name; empty for a point that Volcano does not have."""
        self.flag = flag
        """The flag that switches it off, as in the configuration (K02); empty when none does."""
        self.about = about
        """The question to a plugin, for docs/plugins.md."""
        self.takes = takes
        """Makes a contribution from the arguments that the plugin passes."""
        self.together = together
        """Combines the contributions of all plugins into one answer."""
        self.guarded = guarded
        """Puts a contribution behind the guard: (guard, name of the point, contribution)."""
        self.failing = failing
        """The answer in the place of one that fails, for docs/plugins.md."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, at: None, owner: type) -> Self: ...
    @overload
    def __get__(self, at: "Contributing", owner: type) -> Callable[_P, None]: ...
    @overload
    def __get__(self, at: object, owner: type) -> _A: ...
    def __get__(self, at: object, owner: type) -> object:
        """Return the point itself, or what an object of the class has of it."""
        if at is None:
            return self
        if not isinstance(at, Contributing):
            raise AttributeError(self.name)  # noqa: TRY004 - as for any attribute that is not there

        # Quoted: otherwise each session would build the annotations of each contribution.
        def contribute(*args: "_P.args", **options: "_P.kwargs") -> None:
            at.add(self, self.takes(*args, **options))

        return contribute


class Plain(Point[[_F], _F, _A], Generic[_F, _A]):
    """An extension point to which a plugin contributes a function and nothing else."""

    def __init__(
        self,
        volcano: str,
        flag: str,
        about: str,
        *,
        together: Callable[[Tiers[_F]], _A],
        guarded: Callable[[Guard, str, _F], _F],
        failing: str,
    ) -> None:
        super().__init__(
            volcano,
            flag,
            about,
            takes=_itself,
            together=together,
            guarded=guarded,
            failing=failing,
        )


def _itself(fn: _F) -> _F:
    return fn


class Contributing(ABC):
    """An object on which points are methods that contribute."""

    @abstractmethod
    def add(self, point: Point[..., _C, Any], contribution: _C) -> None:
        """Take a contribution to a point; plugins call the method of that name."""


_U = TypeVar("_U")

Uses = Plain[Callable[[Task], Sequence[_U]], Callable[[Task], tuple[_U, ...]]]
"""A point whose contributions are all collected, for each placed pod."""


def uses(answer: str, read: Callable[..., Sequence[_U]]) -> Uses[_U]:
    """Return a point; `answer` says in words, and `read` checks, what a plugin returns."""
    return Plain(
        "",
        "",
        answer,
        together=combining.joined,
        guarded=guarded_results(read, ()),
        failing="none",
    )
