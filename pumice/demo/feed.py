"""Brings the API server's watches to the scene: four kinds, every change in turn.

The demo shows nothing from other sources. A list after an interruption is turned into changes
here: objects that it lacks were deleted.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Final

from pumice.demo.model import Change, Op, Seen
from shared.api.kinds import JOB, NODE, POD, PODGROUP, Kind
from shared.kube.client import Kube
from shared.kube.decode import ChangeOp
from shared.kube.listwatch import Bookmark, Changed, Listed, ListWatch, Malformed, Unavailable
from shared.runtime.tasks import TaskGroup

KINDS: Final = (NODE, JOB, PODGROUP, POD)


class Feed:
    """The watches of one API server; `run` them in a task and read `ready`."""

    def __init__(
        self, kube: Kube, *, take: Callable[[Change], None], trouble: Callable[[str], None]
    ) -> None:
        """`take` gets each change, `trouble` a line when something cannot be seen."""
        self._kube = kube
        self._take = take
        self._trouble = trouble
        self._listed: set[str] = set()
        self.ready = asyncio.Event()
        """Set when all kinds have been listed once."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with TaskGroup() as tasks:
            for kind in KINDS:
                tasks.create_task(self._watch(kind), name=f"watch {kind.plural}")

    async def _watch(self, kind: Kind) -> None:
        known: dict[str, Seen] = {}
        async with aclosing(ListWatch(self._kube, kind).items()) as items:
            async for item in items:
                match item:
                    case Listed():
                        for change in changes_of_list(known, item.items):
                            self._take(change)
                        self._listed.add(kind.plural)
                        if len(self._listed) == len(KINDS):
                            self.ready.set()
                    case Changed():
                        self._change(known, item)
                    case Malformed():
                        self._trouble(f"{kind.kind} {item.metadata.key}: {item.error}")
                    case Unavailable():
                        self._trouble(f"cannot watch {kind.plural}: {item.message}")
                    case Bookmark():
                        pass

    def _change(self, known: dict[str, Seen], item: Changed) -> None:
        obj: Seen = item.object
        if item.op is ChangeOp.DELETED:
            known.pop(obj.metadata.key, None)
            self._take(Change(op=Op.GONE, obj=obj))
        else:
            known[obj.metadata.key] = obj
            self._take(Change(op=Op.SEEN, obj=obj))


def changes_of_list(known: dict[str, Seen], items: list[Seen]) -> Iterator[Change]:
    """Yield the changes between the objects `known` by key and a whole list; updates `known`.

    An object that has gone and come back under its name between two lists is told as both.
    """
    listed = {obj.metadata.key: obj for obj in items}
    for key, before in list(known.items()):
        if key not in listed or listed[key].metadata.uid != before.metadata.uid:
            del known[key]
            yield Change(op=Op.GONE, obj=before)
    for key, obj in listed.items():
        known[key] = obj
        yield Change(op=Op.SEEN, obj=obj)
