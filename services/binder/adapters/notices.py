"""Gives victims notice and waits for their graces, before their intent is executed.

Outside of the slots for intents at work, as volumes are waited for. A pod that ends in its grace is
spared the rest, and the intent finds it finished. While the API server is unavailable, the grace
runs on.
"""

from typing import Final

from services.binder.adapters.cluster import ApiServerClient
from services.binder.intents.notice import GiveNotice, notice, notice_step
from services.binder.intents.steps import ResponseKind, Wait
from shared.api.kinds import POD
from shared.contracts.messages import Evict, Victim
from shared.runtime.env import Env
from shared.runtime.tasks import TaskGroup

_POLL_S: Final = 1.0
"""Seconds between two reads of a pod in its grace."""
_UNAVAILABLE_S: Final = 10.0
"""Seconds beyond the longest grace after which an eviction no longer waits for a notice."""


class EvictionNotices:
    """Notice for the victims that ask for it."""

    def __init__(self, cluster: ApiServerClient, *, env: Env, most_s: float) -> None:
        """`most_s` bounds each grace; 0 gives no notice."""
        self._cluster = cluster
        self._clock = env.clock
        self._quarantine = env.quarantine
        self._most_s = most_s

    async def prepare(self, intent: Evict) -> None:
        """Wait until no victim of an intent has a grace left."""
        if self._most_s <= 0:
            return
        async with TaskGroup() as group:
            for victim in intent.victims:
                group.create_task(self._one(intent, victim), name=f"notice {victim.pod}")

    async def _one(self, intent: Evict, victim: Victim) -> None:
        with self._quarantine.isolate(POD.token, victim.pod, stage="notice", uid=victim.uid):
            deadline = self._clock.monotonic() + self._most_s + _UNAVAILABLE_S
            while self._clock.monotonic() < deadline:
                left_s = await self._advance(intent, victim)
                if left_s <= 0:
                    return
                await self._clock.sleep(min(left_s, _POLL_S))

    async def _advance(self, intent: Evict, victim: Victim) -> float:
        """Read a pod and give it notice if it has none; return what is left of its grace.

        Where a request fails that may succeed later, that is the time until the next one.
        """
        reply = await self._cluster.get(victim.pod)
        step = None
        if reply.snapshot is not None:
            now = self._clock.now()
            step = notice_step(intent.id, victim, reply.snapshot, now=now, most_s=self._most_s)
            if isinstance(step, Wait):
                return step.seconds
            if isinstance(step, GiveNotice):
                text = notice(intent.id, now=now)
                reply = await self._cluster.give_notice(victim, text, rv=step.rv)
        ends = reply.kind in {ResponseKind.GONE, ResponseKind.REFUSED}
        return 0.0 if ends or (step is None and reply.snapshot is not None) else _POLL_S
