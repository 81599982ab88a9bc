"""Gives bare pods of our schedulers a PodGroup and names it on them; keeps it up (P01 to P05).

One key per group, so that the pods of one owner wait for one create, and the thousand pods of a
Deployment are one look. A group that the API server refuses (its queue is closed, or not there) is
told on a pod, and asked for again when queues change, else once a minute.
"""

from contextlib import suppress
from functools import partial
from typing import Final

from typing_extensions import override

from services.controller.adapters.keeper import Frame, Keeper
from services.controller.adapters.objects import Objects, Taken
from services.controller.adapters.recorder import Recorder
from services.controller.adapters.replica import Replica
from services.controller.adapters.together import all_of
from services.controller.adapters.touched import Touched
from services.controller.podgroup.groups import GroupFacts, Wanted, group_name, model
from services.controller.podgroup.groups import bring_about as needs
from shared.api import keys, kinds
from shared.api.core import Pod
from shared.contracts.subjects import split_key
from shared.runtime.errors import Gone, Rejected
from shared.runtime.logs import Logger

_PATCHERS: Final = 8
"""Pods of one group that are being patched at once."""
_ASK_AGAIN_S: Final = 60.0
_QUEUE_CALM_S: Final = 5.0
"""After a change of queues: while one empties they change often, and the refused may be many."""


class BarePods(Keeper):
    """The keeper of bare pods; keys are their groups."""

    def __init__(
        self,
        frame: Frame,
        objects: Objects,
        replica: Replica,
        *,
        recorder: Recorder,
        inherit: bool,
        log: Logger,
    ) -> None:
        super().__init__("bare-pods", replica.bare, frame)
        self._objects = objects
        self._replica = replica
        self._recorder = recorder
        self._inherit = inherit
        self._log = log
        self._refused: dict[str, None] = {}
        """Keys of groups that the API server would not take the last time."""

    @override
    def touch(self, touched: Touched) -> None:
        """Have groups looked at; those that were refused, too, when queues changed."""
        for key in touched.bare_groups:
            self.poke(key)
        for key in self._refused if touched.queues else ():
            self.poke(key, _QUEUE_CALM_S)

    @override
    async def bring_about(self, key: str) -> None:
        """Do what one group needs. Raises any of the errors of a seam to be called again."""
        self._refused.pop(key, None)
        facts = self._replica.bare.facts(key, self._replica.groups)
        wanted = needs(facts, inherit=self._inherit)
        try:
            await self._carry_out(key, wanted)
        except Rejected as error:
            self._tell_refused(key, facts, error)

    def _tell_refused(self, key: str, facts: GroupFacts, error: Rejected) -> None:
        self._log.warning("group_refused", group=key, reason=str(error))
        if facts.pods:
            pod = model(facts.pods).metadata
            self._recorder.tell_of(kinds.POD, pod, "PodGroupError", str(error), warning=True)
        self._refused[key] = None
        self.poke(key, _ASK_AGAIN_S)

    async def _carry_out(self, key: str, wanted: Wanted) -> None:
        group = self._replica.groups.get(key)
        if wanted.create is not None:
            with suppress(Taken):  # its fact is on the way
                await self._objects.create(kinds.PODGROUP, split_key(key)[0], wanted.create)
        elif group is not None and wanted.patch:
            await self._objects.patch(kinds.PODGROUP, group.metadata, wanted.patch)
        elif group is not None and wanted.delete:
            await self._objects.delete(kinds.PODGROUP, group.metadata)
        await all_of([partial(self._name, pod) for pod in wanted.unnamed], width=_PATCHERS)

    async def _name(self, pod: Pod) -> None:
        """Write the group's name on a pod; one that is gone needs none."""
        patch = {"metadata": {"annotations": {keys.GROUP_NAME: group_name(pod)}}}
        with suppress(Gone):
            await self._objects.patch(kinds.POD, pod.metadata, patch)
