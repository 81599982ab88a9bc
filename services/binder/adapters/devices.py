"""Writes the device claims of a gang's pods before they are bound; undoes it for failed binds.

Each write names the version of the claim that was read, so that of two writers one reads again. A
crash loses nothing: what is done is in the claims, and the redelivered intent goes on.

Devices with binding conditions are waited for, outside of the slots for intents at work: a driver
may take minutes. If so many pods fail meanwhile that the gang lacks its minimum, no pod of the
intent is bound (ADR 36).
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from services.binder.adapters.cluster import ApiServerClient
from services.binder.adapters.throttle import Throttle
from services.binder.intents import devices as steps
from services.binder.intents.devices import (
    ClaimCreate,
    ClaimDelete,
    ClaimReady,
    ClaimWrite,
    Protect,
    Unusable,
)
from services.binder.intents.steps import RetryDelays, ended
from shared.api.kinds import POD, RESOURCECLAIM, decode
from shared.api.resource import ResourceClaim
from shared.contracts.messages import Bind, BindGang, DeviceUse, ItemOutcome, Result, Retry
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.env import Env
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.quarantine import describe
from shared.runtime.tasks import TaskGroup

_RETRIES: Final = RetryDelays(first_s=0.05, factor=2.0, cap_s=2.0)
_POLLS: Final = RetryDelays(first_s=0.2, factor=1.5, cap_s=5.0)
"""Claims are read every five seconds in the end, as Kubernetes' own scheduler looks at them."""
_POD_EVERY: Final = 3
"""Every third poll also reads the pod, which may have been deleted."""

NextStep = Callable[[ResourceClaim | None], steps.Step]


class DeviceTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of writes to claims and of their preparation."""

    write_s: float
    """How long a write to a claim is retried."""
    prepare_s: float
    """How long drivers may take to prepare devices."""


class DeviceBinder:
    """Makes the device claims of binds ready."""

    def __init__(
        self,
        kube: Kube,
        cluster: ApiServerClient,
        *,
        throttle: Throttle,
        env: Env,
        times: DeviceTimeouts,
        waits: Callable[[Bind], None],
    ) -> None:
        """Call `waits` for each pod whose devices are being prepared."""
        self._kube = kube
        self._cluster = cluster
        self._throttle = throttle
        self._quarantine = env.quarantine
        self._clock = env.clock
        self._faults = env.faults
        self._times = times
        self._waits = waits

    async def prepare(
        self, gang: BindGang, without: Mapping[int, ItemOutcome]
    ) -> dict[int, ItemOutcome]:
        """Prepare a gang's claims, except for the pods `without`; return the outcomes so far."""
        failed_pods = _FailedPods(gang, without)
        every = dict(enumerate(gang.binds))
        users = {index: item for index, item in every.items() if item.devices}
        awaited = {i: item for i, item in users.items() if any(u.to_prepare for u in item.devices)}
        if not failed_pods.are_too_many:
            await self._for_each(users, self._reserve, failed_pods)
        if not failed_pods.are_too_many:
            await self._for_each(awaited, partial(self._prepared, failed_pods), failed_pods)
        if failed_pods.are_too_many:
            await self._for_each(every, failed_pods.gang_failed, failed_pods)
        return failed_pods.failed

    async def _for_each(
        self,
        items: Mapping[int, Bind],
        work: Callable[[Bind], Awaitable[str]],
        failed_pods: "_FailedPods",
    ) -> None:
        """Run `work` for each pod that has not failed; a message that it returns is a failure."""

        async def one(index: int, item: Bind) -> None:
            message = ""
            with self._quarantine.isolate(
                POD.token, item.pod, stage="devices", uid=item.uid
            ) as kept:
                message = await work(item)
            if kept.error is not None:
                message = describe(kept.error)
            if message:
                await self._fail(index, item, message, failed_pods)

        async with TaskGroup() as group:
            for index, item in items.items():
                if index not in failed_pods:
                    group.create_task(one(index, item), name=f"devices {item.pod}")

    async def _fail(self, index: int, item: Bind, message: str, failed_pods: "_FailedPods") -> None:
        """Record that a pod failed and release its devices, unless it is bound already.

        Pods of a redelivered intent may have been bound before.
        """
        snapshot = await self._cluster.outcome_without_bind(item)
        if snapshot is not None and snapshot.result is Result.BOUND:
            return
        failed_pods.note(
            index, snapshot or ended(item, Result.FAILED, retry=Retry.LATER, message=message)
        )
        if snapshot is None or snapshot.result is not Result.CONFLICT:
            await self.release(item)

    async def _reserve(self, item: Bind) -> str:
        for use in item.devices:
            step = await self._advance(use, partial(self._reserve_step, item, use))
            if use.requests and isinstance(step, ClaimReady):
                step = await self._retried(use, partial(self._show_on_pod, item, use))
            if isinstance(step, Unusable):
                return step.message
        return ""

    def _reserve_step(self, item: Bind, use: DeviceUse, claim: ResourceClaim | None) -> steps.Step:
        return steps.reserve_step(item, use, claim, now=self._now())

    async def _show_on_pod(self, item: Bind, use: DeviceUse) -> steps.Step:
        """Write which requests of its claim serve the extended resources of a pod."""
        namespace, name = split_key(item.pod)
        await self._kube.patch(
            POD, namespace, name, steps.status_of_pod(use), uid=item.uid, subresource="status"
        )
        return ClaimReady()

    async def _prepared(self, failed_pods: "_FailedPods", item: Bind) -> str:
        """Wait until drivers have prepared a pod's devices; return why that fails."""
        deadline = self._clock.monotonic() + self._times.prepare_s
        attempt = 0
        while not failed_pods.are_too_many:
            step = await self._state(item)
            if isinstance(step, ClaimReady):
                return ""
            if isinstance(step, Unusable) or self._clock.monotonic() >= deadline:
                return step.message
            attempt += 1
            if attempt == 1:
                self._waits(item)
            if attempt % _POD_EVERY == 0 and (
                snapshot := await self._cluster.outcome_without_bind(item)
            ):
                return "" if snapshot.result is Result.BOUND else snapshot.message
            await self._clock.sleep(_POLLS.wait_s(attempt, None))
        return ""

    async def _state(self, item: Bind) -> steps.State:
        """Return whether drivers have prepared a pod's devices."""
        for use in item.devices:
            if use.to_prepare:
                step = await self._advance(use, partial(self._prepared_step, item, use))
                if not isinstance(step, ClaimReady):
                    return step
        return ClaimReady()

    def _prepared_step(
        self, item: Bind, use: DeviceUse, claim: ResourceClaim | None
    ) -> steps.State:
        if claim is None:
            return Unusable(f"resource claim {use.claim} was deleted")
        return steps.prepared_step(
            item, use, claim, now=self._now(), timeout_s=self._times.prepare_s
        )

    async def release(self, item: Bind) -> None:
        """Release the claims of a pod that is not bound; on an error others do.

        Kubernetes' own controller releases claims whose pods were deleted.
        """
        for use in item.devices:
            with self._quarantine.isolate(POD.token, item.pod, stage="devices", uid=item.uid):
                await self._advance(use, partial(self._release_step, item, use))

    def _release_step(self, item: Bind, use: DeviceUse, claim: ResourceClaim | None) -> steps.Step:
        if claim is None:
            return ClaimReady()
        return steps.release_step(
            item, use, claim, now=self._now(), timeout_s=self._times.prepare_s
        )

    def _now(self) -> float:
        return self._clock.now()

    async def _advance(self, use: DeviceUse, following: NextStep) -> steps.State:
        """Update a claim step by step until nothing is left to write; return its final state."""
        return await self._retried(use, partial(self._step, use, following))

    async def _retried(
        self, use: DeviceUse, attempt: Callable[[], Awaitable[steps.Step]]
    ) -> steps.State:
        """Repeat `attempt` while it returns writes, or fails for now."""
        deadline = self._clock.monotonic() + self._times.write_s
        failures = 0
        while True:
            failures += 1
            try:
                async with self._throttle.slot():
                    step = await attempt()
            except (Gone, Rejected) as error:
                return Unusable(f"resource claim {use.claim}: {error}")
            except (Retryable, Conflict) as error:
                if self._clock.monotonic() >= deadline:
                    return Unusable(f"resource claim {use.claim}: {error}")
                await self._clock.sleep(_RETRIES.wait_s(failures, None))
                continue
            if isinstance(step, steps.State):
                return step
            if self._clock.monotonic() >= deadline:
                return Unusable(f"resource claim {use.claim}: another client changes it, too")

    async def _step(self, use: DeviceUse, following: NextStep) -> steps.Step:
        """Read a claim and make the next write, if one is needed."""
        namespace, name = split_key(use.claim)
        claim = await self._read(use)
        step = following(claim)
        if isinstance(step, ClaimCreate):
            await self._kube.create(RESOURCECLAIM, namespace, step.body)
        elif claim is not None and isinstance(step, ClaimDelete):
            uid, version = claim.metadata.uid, claim.metadata.resource_version
            await self._kube.delete(
                RESOURCECLAIM, namespace, name, uid=uid, resource_version=version
            )
        elif claim is not None and isinstance(step, Protect | ClaimWrite):
            await self._kube.patch(
                RESOURCECLAIM,
                namespace,
                name,
                step.body,
                uid=claim.metadata.uid,
                resource_version=claim.metadata.resource_version,
                subresource="status" if isinstance(step, ClaimWrite) else "",
            )
        if not isinstance(step, steps.State):
            self._faults.point("binder.after-claim")
        return step

    async def _read(self, use: DeviceUse) -> ResourceClaim | None:
        """Return a claim, None where one that is to be made does not exist."""
        namespace, name = split_key(use.claim)
        try:
            found: ResourceClaim = decode(
                RESOURCECLAIM, await self._kube.get(RESOURCECLAIM, namespace, name)
            )
        except Gone:
            if not use.requests:
                raise
            return None
        return found


class _FailedPods:
    """The pods of an intent that cannot be bound, and whether its gang still has its minimum."""

    def __init__(self, gang: BindGang, without: Mapping[int, ItemOutcome]) -> None:
        self._before = without
        self.failed: dict[int, ItemOutcome] = {}
        count, needed = len(gang.binds), gang.needed
        self._most = count if isinstance(needed, msgspec.UnsetType) else count - needed

    def __contains__(self, index: int) -> bool:
        return index in self._before or index in self.failed

    def note(self, index: int, ended: ItemOutcome) -> None:
        self.failed[index] = ended

    @property
    def are_too_many(self) -> bool:
        return len(self._before) + len(self.failed) > self._most

    async def gang_failed(self, item: Bind) -> str:  # noqa: ARG002 - the same for all
        """Return why a pod is not bound although its own devices are ready."""
        first = next(iter((*self.failed.values(), *self._before.values())))
        return f"{first.pod} of its gang is not bound: {first.message}"
