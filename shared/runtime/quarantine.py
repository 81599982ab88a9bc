"""Quarantine of objects whose handling failed, so that one object cannot stop the others (ADR 14).

A service that handles many objects handles each one inside `Quarantine.isolate`. An error other
than `Retryable`, `Conflict` and `Rejected` ends the handling of that object only. The object is
quarantined: its reason is logged once (with a traceback the first time), counted, and passed to the
listeners that write Kubernetes Events. It is released when the same stage handles it without an
error, or when the object is deleted. The caller decides when it tries again: after a change of the
object, or after a long delay.

`QuarantineRegistry` holds the quarantined objects for the health page `/quarantine` and the
metrics. It is bounded, so no service decides by it. A service that does not see deletions passes
`forget_after_s`; an object is then released when it has not failed for that long.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator
from types import TracebackType
from typing import Final, Self

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Rejected, Retryable
from shared.runtime.logs import Logger

MAX_ITEMS: Final = 1_000
"""Most objects in the registry; a new one replaces the oldest."""
_MAX_LETTERS: Final = 500


class QuarantinedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One quarantined object."""

    kind: str
    """Token of `shared.api.kinds`, or another closed word such as `plugin`; a label of metrics."""
    key: str
    """`namespace/name` or `name`."""
    stage: str
    """The step that failed, one of a few words (`fold`, `write`, ...); a label of metrics."""
    reason: str
    """One line for a person."""
    since: float
    """Unix seconds of the first failure."""
    failures: int


def describe(error: BaseException) -> str:
    """Return an error as one line of bounded length."""
    return bounded(f"{type(error).__name__}: {error}")


def bounded(text: str) -> str:
    """Return a text as one line of bounded length."""
    line = " ".join(text[: 2 * _MAX_LETTERS].split())
    line = line.encode("utf-8", "backslashreplace").decode()  # half a character cannot be shown
    return line if len(line) <= _MAX_LETTERS else f"{line[: _MAX_LETTERS - 3]}..."


class QuarantineRegistry(Collector):
    """The quarantined objects of one process, as a page and as metrics; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[tuple[str, str], QuarantinedObject] = {}
        self._failures: Counter[tuple[str, str]] = Counter()

    def put(self, kind: str, key: str, *, stage: str, reason: str, now: float) -> bool:
        """Quarantine an object; return whether its key, stage or reason is new.

        `now` is Unix seconds. A new one is worth a line in the log and an Event on the object.
        """
        at, reason = (kind, key), bounded(reason)
        with self._lock:
            self._failures[kind, stage] += 1
            before = self._items.get(at)
            if before is None and len(self._items) >= MAX_ITEMS:
                del self._items[next(iter(self._items))]
            self._items[at] = QuarantinedObject(
                kind=kind,
                key=key,
                stage=stage,
                reason=reason,
                since=before.since if before else now,
                failures=before.failures + 1 if before else 1,
            )
        return before is None or (before.stage, before.reason) != (stage, reason)

    def drop(self, kind: str, key: str, *, stage: str = "") -> bool:
        """Release an object; return whether it was quarantined.

        With `stage`, only if that stage had failed.
        """
        with self._lock:
            item = self._items.get((kind, key))
            if item is None or (stage and item.stage != stage):
                return False
            del self._items[kind, key]
        return True

    def clear(self, *, stage: str = "") -> None:
        """Release all objects, or all of one stage, because the service starts again."""
        with self._lock:
            self._items = {
                at: item for at, item in self._items.items() if stage and item.stage != stage
            }

    def __len__(self) -> int:
        return len(self._items)

    def get(self, kind: str, key: str) -> QuarantinedObject | None:
        """Return the quarantined object of a key, or None."""
        return self._items.get((kind, key))

    def items(self) -> list[QuarantinedObject]:
        """Return the quarantined objects, by kind and key."""
        with self._lock:
            found = list(self._items.values())
        return sorted(found, key=lambda item: (item.kind, item.key))

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics: objects per kind, and failures per kind and stage."""
        with self._lock:
            count_by_kind = Counter(item.kind for item in self._items.values())
            failures = dict(self._failures)
        now = GaugeMetricFamily(
            "pumice_quarantined_objects", "Quarantined objects", labels=["kind"]
        )
        for kind in sorted({kind for kind, _ in failures}):
            now.add_metric([kind], count_by_kind[kind])
        yield now
        ever = CounterMetricFamily(
            "pumice_quarantine_failures",
            "Failures for which an object was quarantined",
            labels=["kind", "stage"],
        )
        for labels, count in sorted(failures.items()):
            ever.add_metric(labels, count)
        yield ever


REASON: Final = "Quarantined"
"""Reason of the Kubernetes Event on a quarantined object."""

_HANDLED_BY_CALLER: Final = (Retryable, Conflict, Rejected)
"""Errors that pass through `isolate`: the caller knows what to do about them."""

OnQuarantined = Callable[[str, str, str, str], None]
"""Takes the token of a kind, a key, the uid if it is known, and one line for a person."""


class Quarantine:
    """Quarantines the objects of one process; made once, by the composition root."""

    def __init__(
        self,
        registry: QuarantineRegistry,
        *,
        clock: Clock,
        log: Logger,
        forget_after_s: float | None = None,
    ) -> None:
        self.registry: Final = registry
        self._forget_after_s = forget_after_s
        self._ends: dict[tuple[str, str], float] = {}
        """With `forget_after_s`: keys in the order in which they end, and when, monotonic."""
        self._clock = clock
        self._log = log
        self._listeners: list[OnQuarantined] = []
        self._traced: set[tuple[str, type, str, int]] = set()

    def on_quarantined(self, tell: OnQuarantined) -> None:
        """Add a listener that is called for each object quarantined for a new reason."""
        self._listeners.append(tell)

    def isolate(self, kind: str, key: str, *, stage: str, uid: str = "") -> "Isolation":
        """Return a context that handles one object: an unexpected error quarantines it."""
        return Isolation(self, kind, key, stage, uid)

    def failed(
        self, kind: str, key: str, *, stage: str, error: BaseException | str, uid: str = ""
    ) -> None:
        """Quarantine an object, for an error or for a reason that is known."""
        reason = error if isinstance(error, str) else describe(error)
        news = self.registry.put(kind, key, stage=stage, reason=reason, now=self._clock.now())
        self._forget_later(kind, key)
        if not news:
            self._log.debug(
                "object_quarantined_again", kind=kind, key=key, stage=stage, reason=reason
            )
            return
        trace = None if isinstance(error, str) or self._is_known(stage, error) else error
        self._log.error(
            "object_quarantined", kind=kind, key=key, stage=stage, reason=reason, exc_info=trace
        )
        for tell in self._listeners:
            tell(kind, key, uid, f"Quarantined until it changes: {stage}: {reason}")

    def _is_known(self, stage: str, error: BaseException) -> bool:
        """Return whether the log has such a traceback: thousands of objects may fail equally."""
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        line = (place.tb_frame.f_code.co_filename, place.tb_lineno) if place else ("", 0)
        such = (stage, type(error), *line)
        known = such in self._traced
        if not known and len(self._traced) < MAX_ITEMS:
            self._traced.add(such)
        return known

    def _forget_later(self, kind: str, key: str) -> None:
        if self._forget_after_s is None:
            return
        idle = not self._ends
        self._ends.pop((kind, key), None)
        if len(self._ends) >= MAX_ITEMS:
            del self._ends[next(iter(self._ends))]
        self._ends[kind, key] = self._clock.monotonic() + self._forget_after_s
        if idle:
            asyncio.get_running_loop().call_later(self._forget_after_s, self._forget_expired)

    def _forget_expired(self) -> None:
        """Release the objects without a failure for `forget_after_s`; call again for the next."""
        now = self._clock.monotonic()
        while self._ends:
            (kind, key), ends = next(iter(self._ends.items()))
            if ends > now:
                asyncio.get_running_loop().call_later(ends - now, self._forget_expired)
                return
            del self._ends[kind, key]
            self.gone(kind, key)

    def handled(self, kind: str, key: str, *, stage: str) -> None:
        """Release an object that `stage` has handled without an error."""
        if len(self.registry) and self.registry.drop(kind, key, stage=stage):
            self._log.info("object_released", kind=kind, key=key, stage=stage)

    def gone(self, kind: str, key: str) -> None:
        """Release an object that was deleted."""
        if len(self.registry):
            self.registry.drop(kind, key)

    def keep_only(self, kind: str, keys: Container[str], *, stage: str) -> None:
        """Release the objects of one stage and kind, except those with these keys."""
        for item in self.registry.items() if len(self.registry) else ():
            if (item.kind, item.stage) == (kind, stage) and item.key not in keys:
                self.registry.drop(kind, item.key)

    def begin_anew(self, *, stage: str) -> None:
        """Release the objects of one stage: it handles all of them once more."""
        self.registry.clear(stage=stage)


class Isolation:
    """The handling of one object; afterwards `error` is its unexpected error, or None."""

    __slots__ = ("_key", "_kind", "_quarantine", "_stage", "_uid", "error")

    def __init__(self, quarantine: Quarantine, kind: str, key: str, stage: str, uid: str) -> None:
        self._quarantine = quarantine
        self._kind = kind
        self._key = key
        self._stage = stage
        self._uid = uid
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            self._quarantine.handled(self._kind, self._key, stage=self._stage)
            return False
        if isinstance(error, _HANDLED_BY_CALLER) or not isinstance(error, Exception):
            return False
        self.error = error
        self._quarantine.failed(
            self._kind, self._key, stage=self._stage, error=error, uid=self._uid
        )
        return True
