"""A rate-limited work queue like client-go's: deduplicated, fair, one worker per key at a time.

A work queue holds keys, not events: the handler reads the present state itself, so a second add of
a waiting key merges and nothing is lost by merging. Namespaces take turns, and the keys of one are
served in order of arrival: a tenant with many objects does not hold up the others. A key added
while its handler runs is served once more after it.

Failures stay with their key: `Retryable` backs off (by the ladder, or as long as the other side
asked), any other exception quarantines the key (`shared.runtime.quarantine`) and is counted and
backed off the same way, so that one broken object does not stop the others or spin. Success
resets the ladder.

Adding never waits, so that a handler may add any key. A key is held once, hence the queue is
bounded by the number of objects; new keys beyond `capacity` are counted as overflows.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from shared.runtime.backoff import Backoff
from shared.runtime.env import Env
from shared.runtime.errors import PumiceError, Retryable
from shared.runtime.metrics import Metrics
from shared.runtime.tasks import TaskGroup, sleep_or_event

K = TypeVar("K", bound=Hashable)

_IDLE_S = 3600.0


class _Turns(Generic[K]):
    """Distinct waiting keys. Namespaces are served in turn, the keys of each in order of arrival.

    So a namespace with many keys holds up another one by a single key at a time. Keys that are not
    of the form `namespace/name` share one turn.
    """

    def __init__(self) -> None:
        self._keys: set[K] = set()
        self._by_namespace: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        """Keys per namespace that has any; the namespace whose turn it is comes first."""

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: K) -> bool:
        return key in self._keys

    def push(self, key: K) -> None:
        """Add a key that does not wait yet behind those of its namespace."""
        self._keys.add(key)
        self._by_namespace.setdefault(_namespace(key), OrderedDict())[key] = None

    def pop(self) -> K:
        """Take the first key of the namespace whose turn it is. Raises KeyError if none waits."""
        namespace, waiting = next(iter(self._by_namespace.items()), ("", None))
        if waiting is None:
            raise KeyError("no key waits")
        key, _ = waiting.popitem(last=False)
        self._keys.discard(key)
        if waiting:
            self._by_namespace.move_to_end(namespace)
        else:
            del self._by_namespace[namespace]
        return key


def _namespace(key: Hashable) -> str:
    return str(key).rpartition("/")[0]


class WorkQueueMetrics:
    """The metrics that all work queues of a process share, labelled by queue; make it once."""

    def __init__(self, metrics: Metrics) -> None:
        labels = ("name",)
        self.waiting = metrics.gauge("pumice_work_queue_waiting", "Keys in the work queue", labels)
        self.overflows = metrics.counter(
            "pumice_work_queue_overflows", "Keys refused by a full work queue", labels
        )
        self.retries = metrics.counter(
            "pumice_work_queue_retries", "Keys that failed and are retried", labels
        )
        self.failures = metrics.counter(
            "pumice_work_queue_failures",
            "Keys that failed with an unexpected exception",
            labels,
        )


class WorkQueue(Generic[K]):
    """Keys of one controller. `backoff` is only read (`delay_s`); attempts are counted per key.

    A key that fails is quarantined as one of `kind`, at `stage`.
    """

    def __init__(
        self,
        name: str,
        *,
        kind: str,
        stage: str = "handle",
        capacity: int,
        backoff: Backoff,
        env: Env,
        metrics: WorkQueueMetrics,
    ) -> None:
        self._name = name
        self._kind = kind
        self._stage = stage
        self._quarantine = env.quarantine
        self._capacity = capacity
        self._clock = env.clock
        self._backoff = backoff
        self._log = env.log
        self._metrics = metrics
        self._waiting = metrics.waiting.labels(name)
        self._ready: _Turns[K] = _Turns()
        self._keys_ready = asyncio.Semaphore(0)
        """Counts `_ready`, so that one more key wakes one worker."""
        self._running: set[K] = set()
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._attempts: dict[K, int] = {}
        self._successes = 0
        self._timer_set = asyncio.Event()

    def __len__(self) -> int:
        """Return how many distinct keys are waiting, delayed or being handled."""
        unplanned = sum(1 for key in self._running if key not in self._due)
        return len(self._ready) + len(self._due) + unplanned

    @property
    def backlog(self) -> int:
        """Return how many keys wait for a free worker."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Queue `key` for handling.

        A key that backs off after a failure keeps its delay, because the reason to wait still
        exists.
        """
        if key not in self._attempts or key in self._running:
            self._count_overflow(key)
            self._enqueue(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Queue `key` for handling after `delay_s` seconds, or earlier if it was due earlier.

        Like `add`, it does not shorten the delay of a key that backs off.
        """
        if delay_s <= 0:
            self.add(key)
        elif key not in self._attempts or key not in self._due:
            self._delay(key, delay_s)

    def _delay(self, key: K, delay_s: float) -> None:
        due = self._clock.monotonic() + delay_s
        if key in self._ready or due >= self._due.get(key, float("inf")):
            return
        self._count_overflow(key)
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._timers, (due, self._sequence, key))
        if self._timers[0][1] == self._sequence:
            self._timer_set.set()

    def _count_overflow(self, key: K) -> None:
        if not self._knows(key) and len(self) >= self._capacity:
            self._metrics.overflows.labels(self._name).inc()

    async def run(self, handler: Callable[[K], Awaitable[None]], workers: int) -> None:
        """Serve keys with `workers` at a time until cancelled."""
        async with TaskGroup() as group:
            group.create_task(self._serve_timers(), name=f"{self._name}-timers")
            for number in range(workers):
                group.create_task(self._serve(handler), name=f"{self._name}-{number}")

    def _knows(self, key: K) -> bool:
        return key in self._ready or key in self._running or key in self._due

    def _enqueue(self, key: K) -> None:
        self._due.pop(key, None)
        if key in self._running:
            self._again.add(key)
        elif key not in self._ready:
            self._ready.push(key)
            self._keys_ready.release()
        self._waiting.set(len(self._ready))

    async def _serve_timers(self) -> None:
        while True:
            self._timer_set.clear()
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                due, _, key = heapq.heappop(self._timers)
                if self._due.get(key) == due:
                    self._enqueue(key)
            wait_s = self._timers[0][0] - now if self._timers else _IDLE_S
            await sleep_or_event(self._clock, wait_s, self._timer_set)

    async def _serve(self, handler: Callable[[K], Awaitable[None]]) -> None:
        while True:
            await self._keys_ready.acquire()
            key = self._ready.pop()
            self._running.add(key)
            self._waiting.set(len(self._ready))
            try:
                await self._handle(handler, key)
            finally:
                self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                if key not in self._attempts:
                    self._enqueue(key)

    async def _handle(self, handler: Callable[[K], Awaitable[None]], key: K) -> None:
        kind, stage = self._kind, self._stage
        began, successes = self._clock.monotonic(), self._successes
        try:
            with self._quarantine.isolate(kind, str(key), stage=stage) as isolated:
                await handler(key)
        except Retryable as error:
            self._log.info("key_requeued", work_queue=self._name, key=str(key), reason=str(error))
            self._retry(key, self._cost_s(began, successes), error.retry_after_s)
            return
        except PumiceError as error:
            self._quarantine.failed(kind, str(key), stage=stage, error=error)
            failed = True
        else:
            failed = isolated.error is not None
        if failed:
            self._metrics.failures.labels(self._name).inc()
            self._retry(key, self._cost_s(began, successes))
        else:
            self._successes += 1
            self._attempts.pop(key, None)

    def _cost_s(self, began: float, successes: int) -> float:
        """Return how long an attempt took by the fault of its key.

        It is 0 where no other key succeeded meanwhile: then the API server may be away.
        """
        return self._clock.monotonic() - began if self._successes > successes else 0.0

    def _retry(self, key: K, took_s: float, after_s: float | None = None) -> None:
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        self._metrics.retries.labels(self._name).inc()
        delay_s = self._backoff.delay_s(attempt, took_s=took_s) if after_s is None else after_s
        self._due.pop(key, None)
        self._delay(key, delay_s)
