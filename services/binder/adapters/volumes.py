"""Waits for the volumes of a gang before any of its pods is bound.

Outside of the slots for intents at work: a provisioner may take minutes, or never come, and binds
that need no volume must not queue up behind it. Bounded by `--volume-bind-timeout` and by how many
intents a replica holds. A crash loses nothing: everything asked for is in the objects, and the
redelivered intent asks again.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from services.binder.adapters.cluster import ApiServerClient
from services.binder.adapters.throttle import Throttle
from services.binder.intents import volumes as steps
from services.binder.intents.steps import RetryDelays, ended
from services.binder.intents.volumes import (
    AskForVolume,
    Step,
    Unbindable,
    VolumePending,
    VolumeReady,
)
from shared.api.kinds import POD, PV, PVC, decode
from shared.contracts.messages import Bind, BindGang, ClaimUse, ItemOutcome, Result, Retry
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.env import Env
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.quarantine import describe
from shared.runtime.tasks import TaskGroup

T = TypeVar("T")
_POLLS: Final = RetryDelays(first_s=0.1, factor=1.5, cap_s=1.0)
"""Claims are read once a second in the end, as Kubernetes' own scheduler does."""
_POD_EVERY: Final = 5
"""With every fifth read of the claims the pod is read, too: it may be gone."""


class _Refused(Exception):  # noqa: N818 - reads as the fact it states
    """The API server will not do it, now or ever."""


class VolumeBinder:
    """Makes the volumes of binds ready."""

    def __init__(
        self,
        kube: Kube,
        cluster: ApiServerClient,
        *,
        throttle: Throttle,
        env: Env,
        timeout_s: float,
    ) -> None:
        self._kube = kube
        self._cluster = cluster
        self._throttle = throttle
        self._quarantine = env.quarantine
        self._clock = env.clock
        self._timeout_s = timeout_s

    async def prepare(self, gang: BindGang) -> dict[int, ItemOutcome]:
        """Wait until the gang's claims have their volumes; return how those end that get none."""
        failed: dict[int, ItemOutcome] = {}

        async def one(index: int, item: Bind) -> None:
            ended: ItemOutcome | None = None
            with self._quarantine.isolate(
                POD.token, item.pod, stage="volumes", uid=item.uid
            ) as isolated:
                ended = await self._ready(item)
            if isolated.error is not None:
                ended = _failed(item, describe(isolated.error))
            if ended is not None:
                failed[index] = ended

        async with TaskGroup() as group:
            for index, item in enumerate(gang.binds):
                if item.claims:
                    group.create_task(one(index, item), name=f"volumes {item.pod}")
        return failed

    async def _ready(self, item: Bind) -> ItemOutcome | None:
        deadline = self._clock.monotonic() + self._timeout_s
        requested: set[str] = set()
        attempt = 0
        while True:
            waiting = []
            for use in item.claims:
                step = await self._advance(item, use, requested)
                if isinstance(step, Unbindable):
                    return _failed(item, step.message)
                if not isinstance(step, VolumeReady):
                    waiting.append(use.claim)
            if not waiting:
                return None
            if self._clock.monotonic() >= deadline:
                names = ", ".join(waiting)
                return _failed(item, f"no volume for {names} within {self._timeout_s:g} s")
            attempt += 1
            if attempt % _POD_EVERY == 0 and (
                ended := await self._cluster.outcome_without_bind(item)
            ):
                return ended
            await self._clock.sleep(_POLLS.wait_s(attempt, None))

    async def _advance(self, item: Bind, use: ClaimUse, requested: set[str]) -> Step:
        """Read a claim and write what it needs; when the API server is busy, do it later."""
        try:
            namespace, name = split_key(use.claim)
            claim = await self._send(lambda: self._kube.get(PVC, namespace, name))
            step = steps.claim_step(
                use, item.node, decode(PVC, claim), was_requested=use.claim in requested
            )
            if isinstance(step, VolumePending):
                requested.add(use.claim)  # by us before, or for another pod
            if not isinstance(step, AskForVolume):
                return step
            if use.volume:
                step = await self._reserve(use)
            else:
                patch = steps.select(item.node)
                await self._send(lambda: self._kube.patch(PVC, namespace, name, patch, uid=use.uid))
                step = VolumePending()
        except _Refused as error:
            return Unbindable(f"claim {use.claim}: {error}")
        except (Retryable, Conflict):
            return VolumePending()
        requested.add(use.claim)
        return step

    async def _reserve(self, use: ClaimUse) -> Step:
        volume = decode(PV, await self._send(lambda: self._kube.get(PV, "", use.volume)))
        step = steps.may_reserve(use, volume)
        if isinstance(step, AskForVolume):
            await self._send(
                lambda: self._kube.patch(
                    PV,
                    "",
                    use.volume,
                    steps.reserve(use),
                    uid=use.volume_uid,
                    resource_version=volume.metadata.resource_version,
                )
            )
            step = VolumePending()
        return step

    async def _send(self, request: Callable[[], Awaitable[T]]) -> T:
        try:
            async with self._throttle.slot():
                return await request()
        except (Gone, Rejected) as error:
            raise _Refused(str(error)) from error


def _failed(item: Bind, message: str) -> ItemOutcome:
    return ended(item, Result.FAILED, retry=Retry.LATER, message=message)
