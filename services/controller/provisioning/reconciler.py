"""Creates and deletes the ProvisioningRequests of gangs that wait for nodes.

Keys are PodGroups. A request names templates of its pods: each is made of one pod of the gang, as
the API server has it. They are created after the request that owns them; the autoscaler waits for
them. Where the API server does not serve the kind, the gang's events say so, and it is tried again
every few minutes.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
from typing_extensions import override

from services.controller.adapters.reconciler import ControllerContext, Reconciler
from services.controller.adapters.store import Touched
from services.controller.provisioning import plan
from shared.api import kinds
from shared.api.autoscaling import ProvisioningRequest, ProvisioningStage, stage_of
from shared.api.scheduling import PodGroup
from shared.contracts.subjects import split_key
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Gone
from shared.runtime.workqueue import WorkQueue

_NOT_SERVED_S: Final = 300.0
_NO_POD_S: Final = 5.0


class ProvisioningReconciler(Reconciler):
    """Reconciles the requests of gangs; keys are PodGroups."""

    name = "provisioning"

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        self._complete: dict[str, str] = {}
        """PodGroup → uid of its request whose templates this process has seen to."""

    @override
    def keys(self) -> Iterable[str]:
        groups, requests = self._informers.groups, self._informers.provisioning
        needing = [key for key, group in groups.items() if plan.needs_nodes(group)]
        return dict.fromkeys((*needing, *filter(None, requests.index_values("group"))))

    @override
    def enqueue(self, touched: Touched) -> None:
        for key in touched.of(kinds.PROVISIONINGREQUEST):
            self.add(key)

    @override
    def partition_key(self, key: str) -> str:
        """Return the key with the kind before it: objects of several kinds have the same key."""
        return f"{kinds.PROVISIONINGREQUEST.token}/{key}"

    @override
    def released(self, key: str) -> None:
        self._complete.pop(key, None)

    @override
    async def reconcile(self, key: str) -> None:
        """Reconcile the requests of one gang. Raises an error of `shared.runtime.errors`."""
        group = self._informers.groups.get(key)
        requests = self._informers.provisioning.by_index("group", key)
        change = plan.change_for(group, requests, now=self._clock.now())
        if group is not None and change.create:
            await self._create(key, change.create, group)
            return
        for request in change.delete:
            await self._writer.delete(kinds.PROVISIONINGREQUEST, request.metadata)
            self._log.info("provisioning_request_deleted", request=request.metadata.key)
        left = [each for each in requests if each not in change.delete]
        if group is None or not left:
            self._complete.pop(key, None)
            return
        if change.again_in_s > 0:
            self.add(key, change.again_in_s)
        for request in left:
            await self._add_templates(key, group, request)

    async def _create(self, key: str, name: str, group: PodGroup) -> None:
        condition = plan.needs_nodes(group)
        assert condition is not None, "a request is created for a gang that needs nodes"
        body = plan.request_body(name, group, condition)
        try:
            reply = await self._writer.create(
                kinds.PROVISIONINGREQUEST, group.metadata.namespace, body
            )
        except Gone:
            message = "the API server does not serve ProvisioningRequests (autoscaling.x-k8s.io/v1)"
            self._log.warning("provisioning_requests_not_served", group=key)
            self._recorder.object_event(
                kinds.PODGROUP, group.metadata, "NoProvisioningRequest", message, warning=True
            )
            self.add(key, _NOT_SERVED_S)
            return
        made: ProvisioningRequest = kinds.decode(kinds.PROVISIONINGREQUEST, reply)
        self._log.info("provisioning_request_created", request=made.metadata.key, pods=made.pods)
        await self._add_templates(key, group, made)

    async def _add_templates(self, key: str, group: PodGroup, request: ProvisioningRequest) -> None:
        """Create the templates of a request that the autoscaler has not accepted yet."""
        uid, condition = request.metadata.uid, plan.needs_nodes(group)
        if (
            condition is None
            or self._complete.get(key) == uid
            or stage_of(request)[0] != ProvisioningStage.NEW
        ):
            return
        namespace, _ = split_key(key)
        sets = zip(request.spec.pod_sets, plan.pod_sets(condition), strict=False)
        for pod_set, needed in sets:
            try:
                pod = msgspec.json.decode(await self._writer.get(kinds.POD, namespace, needed.like))
            except Gone:
                self.add(key, _NO_POD_S)  # the gang names another pod soon
                return
            body = plan.template_body(pod_set.pod_template_ref.name, request.metadata, pod)
            with suppress(AlreadyExists):
                await self._writer.create(kinds.PODTEMPLATE, namespace, body)
        self._complete[key] = uid
