"""Executes intents: sends requests to the API server and follows the pure steps.

Third step of the flow "bind → POST". The steps in `services.binder.intents` decide after each
response what follows: an outcome, a read, or a wait and another attempt.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Protocol

from services.binder.adapters.cluster import ApiServerClient
from services.binder.adapters.devices import DeviceBinder
from services.binder.adapters.notices import EvictionNotices
from services.binder.adapters.volumes import VolumeBinder
from services.binder.intents import bind as bind_steps
from services.binder.intents import evict as evict_steps
from services.binder.intents.evict import Delete, Nomination, PatchConditions
from services.binder.intents.steps import ApiResponse, Get, IntentProgress, RetryDelays, Wait, ended
from services.binder.metrics import BinderMetrics
from shared.api.kinds import POD
from shared.api.time import format_seconds
from shared.contracts.messages import (
    Bind,
    BindGang,
    Evict,
    ItemOutcome,
    Outcome,
    Preemptor,
    Result,
    Retry,
    Victim,
)
from shared.runtime.env import Env
from shared.runtime.quarantine import describe
from shared.runtime.tasks import TaskGroup

_VICTIMS_AT_ONCE: Final = 8
_RECHECK_S: Final = 2.0
"""Seconds after which the preemptor is read again before the next eviction."""


class PodOutcomeListener(Protocol):
    """Receives the outcomes of pods, for Kubernetes Events and events of subscribers."""

    def bound(self, gang: BindGang, item: Bind) -> None:
        """Handle that a pod was bound."""
        ...

    def evicted(self, intent: Evict, victim: Victim) -> None:
        """Handle that a pod is being evicted."""
        ...


class IntentExecutor:
    """Executes intents one by one; keeps no state between them."""

    def __init__(
        self,
        cluster: ApiServerClient,
        *,
        listeners: Sequence[PodOutcomeListener],
        delays: RetryDelays,
        volumes: VolumeBinder,
        devices: DeviceBinder,
        notices: EvictionNotices,
        env: Env,
        metrics: BinderMetrics,
    ) -> None:
        self._cluster = cluster
        self._listeners = tuple(listeners)
        self._quarantine = env.quarantine
        self._clock = env.clock
        self._faults = env.faults
        self._metrics = metrics
        self._instance = env.instance
        self._delays = delays
        self._volumes = volumes
        self._devices = devices
        self._notices = notices

    async def prepare(self, intent: BindGang | Evict) -> Mapping[int, ItemOutcome]:
        """Prepare volumes, then devices, of pods to bind, or give victims notice; may take minutes.

        Returns index of a pod → outcome, for the pods that `run` must not bind.
        """
        if not isinstance(intent, BindGang):
            await self._notices.prepare(intent)
            return {}
        failed = await self._volumes.prepare(intent)
        return failed | await self._devices.prepare(intent, without=failed)

    async def run(
        self, intent: BindGang | Evict, ended: Mapping[int, ItemOutcome] | None = None
    ) -> Outcome:
        """Execute an intent for all pods that are not in `ended`, and return its outcome.

        Has no deadline: it waits while the API server is unavailable.
        """
        progress = IntentProgress(intent)
        for index, item in (ended or {}).items():
            progress.record(index, item)
        if isinstance(intent, BindGang):
            await self._bind_all(intent, progress)
        else:
            await self._evict_all(intent, progress)
        return self._count_outcome(intent, progress)

    def refuse(self, intent: BindGang | Evict, reason: str) -> Outcome:
        """Return an outcome in which all pods failed without an attempt, for another decision."""
        items: tuple[Bind | Victim, ...]
        items = (*intent.binds,) if isinstance(intent, BindGang) else (*intent.victims,)
        progress = IntentProgress(intent)
        for index, item in enumerate(items):
            progress.record(index, _failed(item, reason))
        return self._count_outcome(intent, progress)

    async def report(self, intent: BindGang | Evict) -> Outcome:
        """Return the state of each pod without an attempt, for an intent delivered too often."""
        progress = IntentProgress(intent)
        if isinstance(intent, BindGang):
            for index, item in enumerate(intent.binds):
                ended = await self._isolated(item, self._report_bind(item))
                await self._clean_up(item, ended)
                progress.record(index, ended)
        else:
            for index, victim in enumerate(intent.victims):
                progress.record(index, await self._isolated(victim, self._report_eviction(victim)))
        return self._count_outcome(intent, progress)

    async def _isolated(self, item: Bind | Victim, work: Awaitable[ItemOutcome]) -> ItemOutcome:
        """Return the outcome of one pod; an unexpected error fails this pod and not its gang."""
        with self._quarantine.isolate(
            POD.token, item.pod, stage="execute", uid=item.uid
        ) as isolated:
            return await work
        return _failed(item, describe(isolated.error or Exception()))

    def _count_outcome(self, intent: BindGang | Evict, progress: IntentProgress) -> Outcome:
        outcome = progress.outcome(instance=self._instance, now=self._clock.now())
        kind = "bind" if isinstance(intent, BindGang) else "evict"
        for item in outcome.items:
            self._metrics.items.labels(kind, item.result.value).inc()
        return outcome

    async def _bind_all(self, gang: BindGang, progress: IntentProgress) -> None:
        async def one(index: int, item: Bind) -> None:
            ended: ItemOutcome | None = None
            with self._quarantine.isolate(
                POD.token, item.pod, stage="execute", uid=item.uid
            ) as isolated:
                ended = await self._bind(item)
            if ended is None:
                ended = _failed(item, describe(isolated.error or Exception()))
            await self._clean_up(item, ended)
            if ended.result is Result.BOUND:
                with self._quarantine.isolate(POD.token, item.pod, stage="tell"):
                    for listener in self._listeners:
                        listener.bound(gang, item)
            progress.record(index, ended)
            if progress.open:
                self._faults.point("binder.mid-gang")

        async with TaskGroup() as group:
            for index, item in enumerate(gang.binds):
                if not progress.has(index):
                    group.create_task(one(index, item), name=f"bind {item.pod}")

    async def _clean_up(self, item: Bind, ended: ItemOutcome) -> None:
        """Give the devices of a pod back that was not bound; one that is elsewhere may use them."""
        if item.devices and ended.result not in {Result.BOUND, Result.CONFLICT}:
            await self._devices.release(item)

    async def _bind(self, item: Bind) -> ItemOutcome:
        attempt = 0
        while True:
            attempt += 1
            reply = await self._cluster.bind(item)
            step: ItemOutcome | Get | Wait = bind_steps.after_post(
                item, reply, attempt=attempt, delays=self._delays
            )
            if isinstance(step, Get):
                reply = await self._cluster.get(item.pod)
                step = bind_steps.after_get(item, reply, attempt=attempt, delays=self._delays)
            if isinstance(step, ItemOutcome):
                return step
            await self._clock.sleep(step.seconds)

    async def _report_bind(self, item: Bind) -> ItemOutcome:
        last = self._delays.attempts
        while True:
            reply = await self._cluster.get(item.pod)
            step = bind_steps.after_get(item, reply, attempt=last, delays=self._delays)
            if isinstance(step, ItemOutcome):
                return step
            await self._clock.sleep(step.seconds)

    async def _evict_all(self, intent: Evict, progress: IntentProgress) -> None:
        async def one(index: int, victim: Victim) -> None:
            ended = await self._isolated(victim, self._evict(intent, victim))
            if ended.result is Result.EVICTED:
                with self._quarantine.isolate(POD.token, victim.pod, stage="tell"):
                    for listener in self._listeners:
                        listener.evicted(intent, victim)
            progress.record(index, ended)

        checked_s = float("-inf")
        verdict = Nomination.PROCEED
        for first in range(0, len(intent.victims), _VICTIMS_AT_ONCE):
            chunk = range(first, min(first + _VICTIMS_AT_ONCE, len(intent.victims)))
            if intent.preemptor and self._clock.monotonic() - checked_s > _RECHECK_S:
                verdict = await self._nominate(intent.preemptor)
                checked_s = self._clock.monotonic()
            if verdict is not Nomination.PROCEED:
                for index in chunk:
                    progress.record(index, _not_evicted(intent.victims[index], verdict))
                continue
            async with TaskGroup() as group:
                for index in chunk:
                    victim = intent.victims[index]
                    group.create_task(one(index, victim), name=f"evict {victim.pod}")

    async def _nominate(self, preemptor: Preemptor) -> Nomination:
        attempt = 0
        while True:
            attempt += 1
            reply = await self._cluster.nominate(preemptor)
            step: Nomination | Get | Wait = evict_steps.after_nomination(
                reply, attempt=attempt, delays=self._delays
            )
            if isinstance(step, Get):
                reply = await self._cluster.get(preemptor.pod)
                step = evict_steps.after_preemptor_get(
                    preemptor, reply, attempt=attempt, delays=self._delays
                )
            if isinstance(step, Nomination):
                return step
            await self._clock.sleep(step.seconds)

    async def _evict(self, intent: Evict, victim: Victim) -> ItemOutcome:
        attempt, delete_sent = 1, False
        step: ItemOutcome | PatchConditions | Delete | Get | Wait = Get()
        while not isinstance(step, ItemOutcome):
            if isinstance(step, Wait):
                await self._clock.sleep(step.seconds)
                attempt += 1
                step = Get()
            elif isinstance(step, Get):
                reply = await self._cluster.get(victim.pod)
                step = evict_steps.after_get(
                    victim, reply, attempt=attempt, delete_sent=delete_sent, delays=self._delays
                )
                attempt += 1
            elif isinstance(step, PatchConditions):
                reply = await self._patch_conditions(intent, victim, step.rv)
                step = evict_steps.after_conditions(
                    victim,
                    reply,
                    rv=step.rv,
                    attempt=attempt,
                    delete_sent=delete_sent,
                    delays=self._delays,
                )
            else:
                self._faults.point("binder.mid-evict")
                reply = await self._cluster.delete(victim.pod, victim.uid, rv=step.rv)
                step = evict_steps.after_delete(
                    victim, reply, attempt=attempt, delete_sent=delete_sent, delays=self._delays
                )
                delete_sent = True
        return step

    async def _patch_conditions(self, intent: Evict, victim: Victim, rv: str) -> ApiResponse:
        conditions = evict_steps.eviction_conditions(
            intent.reason, now=format_seconds(self._clock.now())
        )
        return await self._cluster.patch_status("mark", victim.pod, victim.uid, conditions, rv=rv)

    async def _report_eviction(self, victim: Victim) -> ItemOutcome:
        last = self._delays.attempts
        while True:
            reply = await self._cluster.get(victim.pod)
            step = evict_steps.after_get(victim, reply, attempt=last, delays=self._delays)
            if isinstance(step, ItemOutcome):
                return step
            assert isinstance(step, Wait), "there is no step after the last attempt"
            await self._clock.sleep(step.seconds)


def _failed(item: Bind | Victim, message: str) -> ItemOutcome:
    return ItemOutcome(
        pod=item.pod, uid=item.uid, result=Result.FAILED, retry=Retry.LATER, message=message
    )


def _not_evicted(victim: Victim, verdict: Nomination) -> ItemOutcome:
    if verdict is Nomination.SPARE:
        message = "its preemptor needs no room any more"
        return ended(victim, Result.SPARED, message=message)
    message = "the preemptor cannot be nominated"
    return ended(victim, Result.FAILED, retry=Retry.NEVER, message=message)
