"""Requests of intents to the API server; each response becomes an `ApiResponse` value.

Last step of the flow "bind → POST". Each request waits for a slot of the throttle, which adapts to
the latency and result of the requests.
"""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from services.binder.adapters.throttle import Throttle
from services.binder.intents import bind, evict
from services.binder.intents.signals import signal_of
from services.binder.intents.steps import ApiResponse, PodSnapshot, ResponseKind, ended
from services.binder.metrics import BinderMetrics
from shared.api import keys
from shared.api.core import Pod
from shared.api.kinds import POD, decode
from shared.contracts.messages import Bind, ItemOutcome, Preemptor, Result, Victim
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.kube.errors import Refusal
from shared.model import durations
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable


class ApiServerClient:
    """Sends the requests of intents. Of the error kinds, methods raise `Broken` only."""

    def __init__(
        self,
        kube: Kube,
        *,
        throttle: Throttle,
        scheduler_names: Collection[str],
        clock: Clock,
        metrics: BinderMetrics,
    ) -> None:
        self._kube = kube
        self._scheduler_names = tuple(scheduler_names)
        self._throttle = throttle
        self._clock = clock
        self._metrics = metrics

    async def bind(self, bind: Bind) -> ApiResponse:
        """Post the binding with the pod's uid and the annotations to merge (CA06)."""
        namespace, name = split_key(bind.pod)

        post = partial(
            self._kube.bind,
            namespace,
            name,
            uid=bind.uid,
            node=bind.node,
            annotations=bind.annotations,
        )
        return await self._send("bind", post, node=bind.node)

    async def get(self, pod: str) -> ApiResponse:
        """Get the pod."""
        namespace, name = split_key(pod)
        return await self._send("get", lambda: self._kube.get(POD, namespace, name))

    async def outcome_without_bind(self, item: Bind) -> ItemOutcome | None:
        """Read the pod; return the outcome if no bind is needed, else None."""
        reply = await self.get(item.pod)
        if reply.kind is ResponseKind.GONE:
            return ended(item, Result.GONE, message=reply.message)
        return bind.outcome_of(item, reply.snapshot) if reply.snapshot else None

    async def nominate(self, preemptor: Preemptor) -> ApiResponse:
        """Nominate the pod to its node, if it is one of our scheduler names at that moment.

        One request with one scheduler name; each further name may take one more.
        """
        namespace, name = split_key(preemptor.pod)

        async def patch(scheduler: str) -> bytes:
            operations = evict.nomination(preemptor, scheduler)
            return await self._kube.operate(POD, namespace, name, operations, subresource="status")

        reply = ApiResponse(kind=ResponseKind.REFUSED, message="there is no scheduler name")
        for scheduler in self._scheduler_names:
            reply = await self._send("nominate", partial(patch, scheduler))
            if reply.kind is not ResponseKind.REFUSED:
                break
        return reply

    async def patch_status(
        self, verb: str, pod: str, uid: str, patch: dict[str, Any], *, rv: str = ""
    ) -> ApiResponse:
        """Patch a pod's status, at version `rv` if it is given; lists merge by key."""
        namespace, name = split_key(pod)
        return await self._send(
            verb,
            lambda: self._kube.patch(
                POD,
                namespace,
                name,
                patch,
                uid=uid,
                resource_version=rv,
                subresource="status",
                patch_type="strategic",
            ),
        )

    async def give_notice(self, victim: Victim, text: str, *, rv: str) -> ApiResponse:
        """Write the notice of an eviction on a pod at version `rv`."""
        namespace, name = split_key(victim.pod)
        patch = {"metadata": {"annotations": {keys.EVICTION_NOTICE: text}}}
        return await self._send(
            "notice",
            lambda: self._kube.patch(
                POD, namespace, name, patch, uid=victim.uid, resource_version=rv
            ),
        )

    async def delete(self, pod: str, uid: str, *, rv: str) -> ApiResponse:
        """Delete the pod at version `rv` with its own grace period (D03)."""
        namespace, name = split_key(pod)

        async def delete() -> None:
            await self._kube.delete(POD, namespace, name, uid=uid, resource_version=rv)

        return await self._send("delete", delete)

    async def _send(
        self, verb: str, request: Callable[[], Awaitable[bytes | None]], *, node: str = ""
    ) -> ApiResponse:
        """Send a request once there is a slot; a pod that it returns is the snapshot."""
        async with self._throttle.slot(node):
            start = self._clock.monotonic()
            try:
                body = await request()
            except (Gone, Conflict, Rejected, Retryable) as error:
                reply = failed_response(error)
            else:
                snapshot = snapshot_of(body, self._scheduler_names) if body else None
                reply = ApiResponse(kind=ResponseKind.DONE, snapshot=snapshot)
            end = self._clock.monotonic()
        overloaded = reply.kind is ResponseKind.BUSY
        self._throttle.limiter.answered(latency_s=end - start, overloaded=overloaded, now_s=end)
        self._metrics.request_seconds.labels(verb).observe(end - start)
        if overloaded:
            self._metrics.retries.labels(verb).inc()
        return reply


def failed_response(error: Gone | Conflict | Rejected | Retryable) -> ApiResponse:
    """Return the response for an error of a request.

    Its message is the API server's own, without the request: the item says which pod it is about.
    """
    message = error.status.message if isinstance(error, Refusal) else ""
    message = message or str(error)
    if isinstance(error, Retryable):
        retry_s = error.retry_after_s
        return ApiResponse(kind=ResponseKind.BUSY, message=message, retry_after_s=retry_s)
    kind = ResponseKind.REFUSED
    if isinstance(error, Conflict):
        kind = ResponseKind.GONE if isinstance(error, Gone) else ResponseKind.CONFLICT
    return ApiResponse(kind=kind, message=message)


def snapshot_of(body: bytes, scheduler_names: Collection[str]) -> PodSnapshot:
    """Return the part of a pod that decides about intents."""
    pod = decode(POD, body)
    return PodSnapshot(
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        rv=pod.metadata.resource_version,
        phase=pod.status.phase,
        deleting=pod.metadata.deletion_timestamp is not None,
        grace_s=durations.setting(pod.metadata.annotations.get(keys.CHECKPOINT_GRACE, "")) or 0.0,
        notice=pod.metadata.annotations.get(keys.EVICTION_NOTICE, ""),
        signal=signal_of(body) if keys.CHECKPOINT_SIGNAL in pod.metadata.annotations else "",
        foreign=_foreign(pod, scheduler_names),
    )


def _foreign(pod: Pod, scheduler_names: Collection[str]) -> str:
    if pod.spec.scheduler_name not in scheduler_names:
        return f"its schedulerName is {pod.spec.scheduler_name!r}"
    if not pod.group_name:
        return f"it has no annotation {keys.GROUP_NAME} and no spec.schedulingGroup"
    return ""
