"""Loads the plugins of other distributions: entry points of the group `pumice.plugins` (PL25).

All of them, once, at start: what is installed beside the scheduler was put there to be used, and a
plugin that cannot be loaded is told now and not by the configuration that names it first.
"""

from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from services.scheduler.foreign import Failure, ForeignPlugin
from shared.runtime.errors import Rejected

GROUP: Final = "pumice.plugins"


def load_plugins(
    taken: Collection[str], *, note: Callable[[Failure], None]
) -> dict[str, ForeignPlugin]:
    """Return the plugins by name. Raises Rejected with distribution and entry point.

    `taken` are the names of built-in plugins, which no other may have; `note` hears of what plugins
    do wrong later.
    """
    found: dict[str, ForeignPlugin] = {}
    for entry in sorted(entry_points(group=GROUP), key=_origin):
        origin = _origin(entry)
        if entry.name in taken:
            raise _rejected(origin, f"the name {entry.name!r} is that of a built-in plugin")
        if entry.name in found:
            other = found[entry.name].origin
            raise _rejected(origin, f"the name {entry.name!r} is taken by {other}")
        found[entry.name] = ForeignPlugin(
            _kind(entry, origin), name=entry.name, origin=origin, note=note
        )
    return found


def _kind(entry: EntryPoint, origin: str) -> Any:  # noqa: ANN401 - a class of foreign code
    try:
        kind = entry.load()
    except Exception as error:
        text = " ".join(str(error).split())
        raise _rejected(
            origin, f"{entry.value} cannot be imported: {type(error).__name__}: {text}"
        ) from error
    if not callable(kind) or not callable(getattr(kind, "contribute", None)):
        raise _rejected(
            origin, f"{entry.value} is no plugin: a class with a method `contribute` is expected"
        )
    if getattr(kind, "name", None) != entry.name:
        stated = getattr(kind, "name", None)
        raise _rejected(
            origin, f"{entry.value} has the name {stated!r}, its entry point {entry.name!r}"
        )
    return kind


def _origin(entry: EntryPoint) -> str:
    whose = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "no distribution"
    return f"{whose}, entry point {entry.name}"


def _rejected(origin: str, why: str) -> Rejected:
    return Rejected(f"scheduler plugin of {origin}: {why}", field=GROUP)
