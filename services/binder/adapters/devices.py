"""Writes the device claims of a gang's pods before they are bound, and takes back what was vain.

Each write names the version of the claim that was looked at, so that of two writers one looks
again. A crash loses nothing: what is done is in the claims, and the redelivered intent goes on.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from services.binder.adapters.throttle import Throttle
from services.binder.intents import devices as steps
from services.binder.intents.devices import Protect, Ready, Unusable, Write
from services.binder.intents.steps import Ladder, ended
from shared.api.kinds import POD, RESOURCECLAIM, decode
from shared.api.resource import ResourceClaim
from shared.contracts.messages import Bind, BindGang, DeviceUse, ItemOutcome, Result, Retry
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.contain import Containment, describe
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.faults import Faults
from shared.runtime.tasks import TaskGroup

_RETRIES: Final = Ladder(first_s=0.05, factor=2.0, cap_s=2.0)

NextStep = Callable[[ResourceClaim], steps.Step]


class DeviceBinder:
    """Makes the device claims of binds ready."""

    def __init__(
        self,
        kube: Kube,
        *,
        throttle: Throttle,
        contain: Containment,
        clock: Clock,
        faults: Faults,
        timeout_s: float,
    ) -> None:
        self._kube = kube
        self._throttle = throttle
        self._contain = contain
        self._clock = clock
        self._faults = faults
        self._timeout_s = timeout_s

    async def prepare(self, gang: BindGang, without: Collection[int]) -> dict[int, ItemOutcome]:
        """Reserve the gang's claims, but for the pods `without`; return how those end that fail."""
        failed: dict[int, ItemOutcome] = {}

        async def one(index: int, item: Bind) -> None:
            message = ""
            with self._contain.isolate(POD.token, item.pod, stage="devices", uid=item.uid) as kept:
                message = await self._reserve(item)
            if kept.error is not None:
                message = describe(kept.error)
            if message:
                failed[index] = ended(item, Result.FAILED, retry=Retry.LATER, message=message)
                await self.release(item)

        async with TaskGroup() as group:
            for index, item in enumerate(gang.binds):
                if item.devices and index not in without:
                    group.create_task(one(index, item), name=f"devices {item.pod}")
        return failed

    async def _reserve(self, item: Bind) -> str:
        for use in item.devices:
            message = await self._advance(use, partial(steps.reserve_step, item, use))
            if message:
                return message
        return ""

    async def release(self, item: Bind) -> None:
        """Take back what was written for a pod that is not bound; an error leaves it to others.

        Kubernetes' own controller gives claims back whose pods have gone.
        """
        for use in item.devices:
            with self._contain.isolate(POD.token, item.pod, stage="devices", uid=item.uid):
                await self._advance(use, partial(steps.release_step, item, use))

    async def _advance(self, use: DeviceUse, following: NextStep) -> str:
        """Take a claim step by step until nothing is left to do; return why that fails."""
        deadline = self._clock.monotonic() + self._timeout_s
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._throttle.slot():
                    step = await self._step(use, following)
            except (Gone, Rejected) as error:
                return f"resource claim {use.claim}: {error}"
            except (Retryable, Conflict) as error:
                if self._clock.monotonic() >= deadline:
                    return f"resource claim {use.claim}: {error}"
                await self._clock.sleep(_RETRIES.wait_s(attempt, None))
                continue
            if isinstance(step, Unusable):
                return step.message
            if isinstance(step, Ready):
                return ""

    async def _step(self, use: DeviceUse, following: NextStep) -> steps.Step:
        """Look at a claim and make the write that it needs, if it needs one."""
        namespace, name = split_key(use.claim)
        claim = decode(RESOURCECLAIM, await self._kube.get(RESOURCECLAIM, namespace, name))
        step = following(claim)
        if isinstance(step, Protect | Write):
            await self._kube.patch(
                RESOURCECLAIM,
                namespace,
                name,
                step.body,
                uid=use.uid,
                resource_version=claim.metadata.resource_version,
                subresource="status" if isinstance(step, Write) else "",
            )
            self._faults.point("binder.after-claim")
        return step
