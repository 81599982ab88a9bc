"""Runs one intent to its end: asks the API server, and does what the pure steps say."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from services.binder.adapters.cluster import Cluster
from services.binder.adapters.volumes import Volumes
from services.binder.intents import bind as bind_steps
from services.binder.intents import evict as evict_steps
from services.binder.intents.evict import Delete, Verdict
from services.binder.intents.ledger import Ledger
from services.binder.intents.retry import Ladder, Look, Wait
from services.binder.metrics import BinderMetrics
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
from shared.runtime.clock import Clock
from shared.runtime.faults import Faults

_VICTIMS_AT_ONCE: Final = 8
_RECHECK_S: Final = 2.0
"""After so long a preemptor is asked for again before the next victim."""


class Told(Protocol):
    """Who wants to know what happened to a pod: Kubernetes Events and subscribers."""

    def bound(self, gang: BindGang, item: Bind) -> None:
        """Take note that a pod is bound."""
        ...

    def evicted(self, intent: Evict, victim: Victim) -> None:
        """Take note that a pod is being evicted."""
        ...


class Executor:
    """Executes intents; holds no state between them."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        told: Sequence[Told],
        clock: Clock,
        faults: Faults,
        metrics: BinderMetrics,
        instance: str,
        ladder: Ladder,
        volumes: Volumes,
    ) -> None:
        self._cluster = cluster
        self._told = tuple(told)
        self._clock = clock
        self._faults = faults
        self._metrics = metrics
        self._instance = instance
        self._ladder = ladder
        self._volumes = volumes

    async def prepare(self, intent: BindGang | Evict) -> Mapping[int, ItemOutcome]:
        """Wait for what must be there before `run`: volumes; may take minutes.

        Returns how those pods end, by their index, that `run` is not to bind.
        """
        return await self._volumes.prepare(intent) if isinstance(intent, BindGang) else {}

    async def run(
        self, intent: BindGang | Evict, ended: Mapping[int, ItemOutcome] | None = None
    ) -> Outcome:
        """Do what `intent` says for every pod that has not `ended` and return how each did.

        Takes as long as it needs: while the API server is away it waits.
        """
        ledger = Ledger(intent)
        for index, item in (ended or {}).items():
            ledger.record(index, item)
        if isinstance(intent, BindGang):
            await self._bind_all(intent, ledger)
        else:
            await self._evict_all(intent, ledger)
        return self._close(intent, ledger)

    async def report(self, intent: BindGang | Evict) -> Outcome:
        """Return how each pod stands without trying anything: it was delivered too often."""
        ledger = Ledger(intent)
        if isinstance(intent, BindGang):
            for index, item in enumerate(intent.binds):
                ledger.record(index, await self._report_bind(item))
        else:
            for index, victim in enumerate(intent.victims):
                ledger.record(index, await self._report_eviction(victim))
        return self._close(intent, ledger)

    def _close(self, intent: BindGang | Evict, ledger: Ledger) -> Outcome:
        outcome = ledger.outcome(instance=self._instance, now=self._clock.now())
        kind = "bind" if isinstance(intent, BindGang) else "evict"
        for item in outcome.items:
            self._metrics.items.labels(kind, item.result.value).inc()
        return outcome

    async def _bind_all(self, gang: BindGang, ledger: Ledger) -> None:
        async def one(index: int, item: Bind) -> None:
            ended = await self._bind(item)
            if ended.result is Result.BOUND:
                for told in self._told:
                    told.bound(gang, item)
            ledger.record(index, ended)
            if ledger.open:
                self._faults.point("binder.mid-gang")

        async with asyncio.TaskGroup() as group:
            for index, item in enumerate(gang.binds):
                if not ledger.has(index):
                    group.create_task(one(index, item), name=f"bind {item.pod}")

    async def _bind(self, item: Bind) -> ItemOutcome:
        attempt = 0
        while True:
            attempt += 1
            reply = await self._cluster.bind(item)
            step: ItemOutcome | Look | Wait = bind_steps.after_post(
                item, reply, attempt=attempt, ladder=self._ladder
            )
            if isinstance(step, Look):
                reply = await self._cluster.look(item.pod)
                step = bind_steps.after_look(item, reply, attempt=attempt, ladder=self._ladder)
            if isinstance(step, ItemOutcome):
                return step
            await self._clock.sleep(step.seconds)

    async def _report_bind(self, item: Bind) -> ItemOutcome:
        last = self._ladder.attempts
        while True:
            reply = await self._cluster.look(item.pod)
            step = bind_steps.after_look(item, reply, attempt=last, ladder=self._ladder)
            if isinstance(step, ItemOutcome):
                return step
            await self._clock.sleep(step.seconds)

    async def _evict_all(self, intent: Evict, ledger: Ledger) -> None:
        async def one(index: int, victim: Victim) -> None:
            ended = await self._evict(intent, victim)
            if ended.result is Result.EVICTED:
                for told in self._told:
                    told.evicted(intent, victim)
            ledger.record(index, ended)

        checked_s = float("-inf")
        verdict = Verdict.PROCEED
        for first in range(0, len(intent.victims), _VICTIMS_AT_ONCE):
            chunk = range(first, min(first + _VICTIMS_AT_ONCE, len(intent.victims)))
            if intent.preemptor and self._clock.monotonic() - checked_s > _RECHECK_S:
                verdict = await self._nominate(intent.preemptor)
                checked_s = self._clock.monotonic()
            if verdict is not Verdict.PROCEED:
                for index in chunk:
                    ledger.record(index, _unharmed(intent.victims[index], verdict))
                continue
            async with asyncio.TaskGroup() as group:
                for index in chunk:
                    victim = intent.victims[index]
                    group.create_task(one(index, victim), name=f"evict {victim.pod}")

    async def _nominate(self, preemptor: Preemptor) -> Verdict:
        attempt = 0
        while True:
            attempt += 1
            reply = await self._cluster.patch_status(
                "nominate", preemptor.pod, preemptor.uid, evict_steps.nomination(preemptor)
            )
            step: Verdict | Look | Wait = evict_steps.after_nomination(
                reply, attempt=attempt, ladder=self._ladder
            )
            if isinstance(step, Look):
                reply = await self._cluster.look(preemptor.pod)
                step = evict_steps.after_preemptor_look(
                    preemptor, reply, attempt=attempt, ladder=self._ladder
                )
            if isinstance(step, Verdict):
                return step
            await self._clock.sleep(step.seconds)

    async def _evict(self, intent: Evict, victim: Victim) -> ItemOutcome:
        attempt, tried = 0, False
        while True:
            attempt += 1
            marks = evict_steps.marks(intent.reason, now=format_seconds(self._clock.now()))
            reply = await self._cluster.patch_status("mark", victim.pod, victim.uid, marks)
            step: ItemOutcome | Delete | Look | Wait = evict_steps.after_marks(
                victim, reply, attempt=attempt, tried=tried, ladder=self._ladder
            )
            if isinstance(step, Delete):
                self._faults.point("binder.mid-evict")
                reply = await self._cluster.delete(victim.pod, victim.uid)
                step = evict_steps.after_delete(
                    victim, reply, attempt=attempt, tried=tried, ladder=self._ladder
                )
                tried = True
            if isinstance(step, Look):
                reply = await self._cluster.look(victim.pod)
                step = evict_steps.after_look(victim, reply, attempt=attempt, ladder=self._ladder)
            if isinstance(step, ItemOutcome):
                return step
            await self._clock.sleep(step.seconds)

    async def _report_eviction(self, victim: Victim) -> ItemOutcome:
        last = self._ladder.attempts
        while True:
            reply = await self._cluster.look(victim.pod)
            step = evict_steps.after_look(victim, reply, attempt=last, ladder=self._ladder)
            if isinstance(step, ItemOutcome):
                return step
            await self._clock.sleep(step.seconds)


def _unharmed(victim: Victim, verdict: Verdict) -> ItemOutcome:
    if verdict is Verdict.SPARE:
        message = "its preemptor needs no room any more"
        return evict_steps.ended(victim, Result.SPARED, message=message)
    message = "the preemptor cannot be nominated"
    return evict_steps.ended(victim, Result.FAILED, retry=Retry.NEVER, message=message)
