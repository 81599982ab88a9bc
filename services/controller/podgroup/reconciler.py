"""Creates and updates PodGroups of bare pods, and writes their names into the pods (P01 to P05).

One key per group, so that the pods of one owner wait for one create, and the thousand pods of a
Deployment are one pass. A group that the API server refuses (its queue is closed, or not there) is
recorded on a pod, and tried again when queues change or a ResourceQuota has more room, else once a
minute.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from typing_extensions import override

from services.controller.adapters.reconciler import ControllerContext, Reconciler
from services.controller.adapters.store import Touched
from services.controller.adapters.workload_owners import WorkloadOwners
from services.controller.adapters.writer import apply
from services.controller.podgroup.groups import (
    GroupChange,
    GroupFacts,
    change_for,
    model,
)
from services.controller.podgroup.workloads import (
    GroupedWorkload,
    change_for_workload,
    groups_of,
)
from shared.api import keys, kinds
from shared.api.core import Pod
from shared.contracts.subjects import split_key
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Gone, Rejected
from shared.runtime.workqueue import WorkQueue

_PATCHERS: Final = 8
"""Pods of one group that are being patched at once."""
_REQUEUE_AFTER_S: Final = 60.0
_DEBOUNCE_S: Final = 5.0
"""After a change of queues or quotas: while one empties they change often, and the refused may be
many."""


class PodGroupReconciler(Reconciler):
    """Reconciles bare pods; keys are their groups."""

    name = "bare-pods"

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        self._inherit = manager.settings.inherit_owner_annotations
        named = manager.settings.workload_groups_config_map
        self._workloads = WorkloadOwners(manager) if named else None
        self._refused: dict[str, None] = {}
        """Keys of groups that the API server would not take the last time."""

    @override
    def keys(self) -> Iterable[str]:
        return self._informers.bare_groups()

    @override
    def enqueue(self, touched: Touched) -> None:
        """Add groups; those that were refused, too, when queues changed or a quota has room."""
        for key in touched.of(kinds.PODGROUP):
            self.add(key)
        quotas = {split_key(quota)[0] for quota in touched.of(kinds.RESOURCEQUOTA)}
        for key in self._refused:
            if touched.of(kinds.QUEUE) or split_key(key)[0] in quotas:
                self.add(key, _DEBOUNCE_S)

    @override
    async def reconcile(self, key: str) -> None:
        """Reconcile one group. Raises an error of `shared.runtime.errors` to be called again."""
        self._refused.pop(key, None)
        facts = self._informers.group_facts(key)
        try:
            if facts.pods and self._workloads is not None:
                workload = await self._workloads.find(model(facts.pods))
                if workload is not None:
                    await self._group_workload(key, workload, facts)
                    return
            if not any(keys.WORKLOAD_GROUP in pod.metadata.annotations for pod in facts.pods):
                await self._carry_out(key, change_for(facts, inherit=self._inherit))
        except Rejected as error:
            self._record_refusal(key, facts, error)

    async def _group_workload(self, key: str, workload: GroupedWorkload, facts: GroupFacts) -> None:
        """Give pods the PodGroup of their workload, and have that follow it."""
        namespace, own = split_key(key)
        for group in groups_of(workload, facts.pods):
            at = f"{namespace}/{group.name}"
            present = self._informers.groups.get(at)
            if present is not None and not present.metadata.is_controlled_by(workload.metadata.uid):
                self._log.warning("group_name_taken", group=at, workload=workload.metadata.name)
                continue
            change = change_for_workload(workload, group, present, is_whole=group.name == own)
            await self._carry_out(at, change)
        self.add(key, _REQUEUE_AFTER_S)

    def _record_refusal(self, key: str, facts: GroupFacts, error: Rejected) -> None:
        self._log.warning("group_refused", group=key, reason=str(error))
        if facts.pods:
            pod = model(facts.pods).metadata
            self._recorder.object_event(kinds.POD, pod, "PodGroupError", str(error), warning=True)
        self._refused[key] = None
        self.add(key, _REQUEUE_AFTER_S)

    async def _carry_out(self, key: str, change: GroupChange) -> None:
        group = self._informers.groups.get(key)
        if change.create is not None:
            with suppress(AlreadyExists):  # its fact has not arrived yet
                await self._writer.create(kinds.PODGROUP, split_key(key)[0], change.create)
        elif group is not None and change.patch:
            await self._writer.patch(kinds.PODGROUP, group.metadata, change.patch)
        elif group is not None and change.delete:
            await self._writer.delete(kinds.PODGROUP, group.metadata)
        named = [partial(self._annotate, pod, desired) for pod, desired in change.annotate]
        await apply(named, width=_PATCHERS)

    async def _annotate(self, pod: Pod, desired: Mapping[str, str]) -> None:
        """Write the group's name on a pod; one that is gone needs none."""
        patch = {"metadata": {"annotations": desired}}
        with suppress(Gone):
            await self._writer.patch(kinds.POD, pod.metadata, patch)
