"""Loads the scheduler plugins of other distributions: entry points `pumice.plugins` (PL25)."""

from collections.abc import Callable, Collection
from typing import Final

from services.scheduler.foreign import Failure, ForeignPlugin
from shared.entry_points import BadPlugin, load
from shared.runtime.errors import Rejected

GROUP: Final = "pumice.plugins"


def load_plugins(
    taken: Collection[str], *, note: Callable[[Failure], None]
) -> dict[str, ForeignPlugin]:
    """Return the plugins by name. Raises Rejected with distribution and entry point.

    `taken` are the names of built-in plugins, which no other may have; `note` hears of what plugins
    do wrong later.
    """
    try:
        offers = load(GROUP, what="scheduler plugin", method="contribute", taken=taken)
    except BadPlugin as error:
        raise Rejected(str(error), field=GROUP) from error
    return {
        offer.name: ForeignPlugin(offer.kind, name=offer.name, origin=offer.origin, note=note)
        for offer in offers
    }
