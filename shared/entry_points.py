"""Loads what other distributions offer by entry point: plugins of scheduling and of jobs (PL25).

All of a group, once, at start: what is installed beside a service was put there to be used, and a
plugin that cannot be loaded is reported now and not when a configuration names it first.
"""

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple


class BadPlugin(Exception):  # noqa: N818 - the fact
    """A plugin that cannot be loaded; the text names distribution and entry point."""


class Offer(NamedTuple):
    """A class that a distribution offers."""

    name: str
    kind: Any
    """The class, of foreign code."""
    origin: str
    """Distribution, version and entry point, for messages."""


def load(group: str, *, what: str, method: str, taken: Collection[str]) -> tuple[Offer, ...]:
    """Return the offers of a group, in order of their origins.

    `what` says in messages what they are, `method` is one that each must have, `taken` are the
    names of built-in ones, which no other may have. Raises BadPlugin for one that cannot be
    imported, is no such class, or has a name that is not its own.
    """
    found: dict[str, Offer] = {}
    for entry in sorted(entry_points(group=group), key=_origin):
        origin = _origin(entry)

        def bad(why: str, origin: str = origin) -> BadPlugin:
            return BadPlugin(f"{what} of {origin}: {why}")

        if entry.name in taken:
            raise bad(f"the name {entry.name!r} is that of a built-in plugin")
        if entry.name in found:
            raise bad(f"the name {entry.name!r} is taken by {found[entry.name].origin}")
        try:
            kind = entry.load()
        except Exception as error:
            text = " ".join(str(error).split())
            raise bad(
                f"{entry.value} cannot be imported: {type(error).__name__}: {text}"
            ) from error
        if not callable(kind) or not callable(getattr(kind, method, None)):
            raise bad(f"{entry.value} is no plugin: a class with a method `{method}` is expected")
        if (stated := getattr(kind, "name", None)) != entry.name:
            raise bad(f"{entry.value} has the name {stated!r}, its entry point {entry.name!r}")
        found[entry.name] = Offer(entry.name, kind, origin)
    return tuple(found.values())


def _origin(entry: EntryPoint) -> str:
    whose = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "no distribution"
    return f"{whose}, entry point {entry.name}"
