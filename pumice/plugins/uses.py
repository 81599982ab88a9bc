"""Points at which plugins name the claims that travel with a bind."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from pumice.plugins import combining
from pumice.plugins.guarding import answering
from pumice.plugins.interface import Task
from pumice.plugins.point import Plain

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
        guarded=answering(read, ()),
        failing="none",
    )
