"""Gives victims notice and waits for their graces, before their intent is executed.

Outside of the slots for intents at work, as volumes are waited for. A pod that ends in its grace is
spared the rest, and the intent finds it finished. While the API server is unavailable, the grace
runs on.
"""

from functools import partial
from typing import Final, Protocol

from services.binder.adapters.checkpoint_signals import call_pod
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


class PodCaller(Protocol):
    """Calls a pod by HTTP, and does not fail."""

    async def __call__(self, url: str, pod: str, *, timeout_s: float) -> bool:
        """Return whether it answers; after `timeout_s` seconds at the latest."""


class EvictionNotices:
    """Notice for the victims that ask for it."""

    def __init__(
        self,
        cluster: ApiServerClient,
        *,
        env: Env,
        most_s: float,
        call: PodCaller | None = None,
    ) -> None:
        """`most_s` bounds each grace; 0 gives no notice. `call` calls a pod."""
        self._cluster = cluster
        self._call = call or partial(call_pod, log=env.log)
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
            is_called = False
            while self._clock.monotonic() < deadline:
                left_s, url = await self._advance(intent, victim)
                if left_s <= 0:
                    return
                if url and not is_called:
                    is_called = True
                    await self._call(url, victim.pod, timeout_s=left_s)
                else:
                    await self._clock.sleep(min(left_s, _POLL_S))

    async def _advance(self, intent: Evict, victim: Victim) -> tuple[float, str]:
        """Read a pod and give it notice if it has none.

        Returns what is left of its grace, and the URL that it is to be called at while it has a
        notice. Where a request fails that may succeed later, that is the time until the next one.
        """
        reply = await self._cluster.get(victim.pod)
        snapshot, step = reply.snapshot, None
        if snapshot is not None:
            now = self._clock.now()
            step = notice_step(intent.id, victim, snapshot, now=now, most_s=self._most_s)
            if isinstance(step, Wait):
                return step.seconds, snapshot.signal
            if isinstance(step, GiveNotice):
                text = notice(intent.id, now=now)
                reply = await self._cluster.give_notice(victim, text, rv=step.rv)
                if reply.kind is ResponseKind.DONE:
                    return min(snapshot.grace_s, self._most_s), snapshot.signal
        ends = reply.kind in {ResponseKind.GONE, ResponseKind.REFUSED}
        return (0.0 if ends or (step is None and snapshot is not None) else _POLL_S), ""
