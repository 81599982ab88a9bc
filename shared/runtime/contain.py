"""Keeps what fails about one object with that object (ADR 14).

Each place where a service handles one object of many runs inside `isolate`. An error that is none
of `Retryable`, `Conflict` and `Rejected` ends that handling and nothing else: the key is set aside
with its reason, logged once (with a traceback where it is new), counted, and told to those that
write Kubernetes Events. The key is taken back when the same stage handles it well, or when the
object is gone. The caller decides when it is tried again: when the object changes, or after a long
delay.

What is set aside is in the registry `SetAside`, which `/set-aside` of the health pages and the
metrics show. It informs people; no service may decide by it, since it is bounded. A service that is
not told of deletions takes a key back when nothing about it has failed for `forget_after_s`.
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
"""Keys that are held; the one that has been here longest makes room for a new one."""
_MAX_LETTERS: Final = 500


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One key that was set aside."""

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


class SetAside(Collector):
    """The keys that one process has set aside; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[tuple[str, str], Item] = {}
        self._failures: Counter[tuple[str, str]] = Counter()

    def put(self, kind: str, key: str, *, stage: str, reason: str, now: float) -> bool:
        """Set a key aside; return whether that is news (a new key, stage or reason).

        `now` is unix seconds. News are worth a line in the log and an Event on the object.
        """
        at, reason = (kind, key), bounded(reason)
        with self._lock:
            self._failures[kind, stage] += 1
            before = self._items.get(at)
            if before is None and len(self._items) >= MAX_ITEMS:
                del self._items[next(iter(self._items))]
            self._items[at] = Item(
                kind=kind,
                key=key,
                stage=stage,
                reason=reason,
                since=before.since if before else now,
                failures=before.failures + 1 if before else 1,
            )
        return before is None or (before.stage, before.reason) != (stage, reason)

    def drop(self, kind: str, key: str, *, stage: str = "") -> bool:
        """Take a key back that is handled well again or gone; return whether it was held.

        With `stage` only if it is that stage which had failed.
        """
        with self._lock:
            held = self._items.get((kind, key))
            if held is None or (stage and held.stage != stage):
                return False
            del self._items[kind, key]
        return True

    def clear(self, *, stage: str = "") -> None:
        """Take everything back, or everything of one stage: the service begins anew."""
        with self._lock:
            self._items = {
                at: item for at, item in self._items.items() if stage and item.stage != stage
            }

    def __len__(self) -> int:
        return len(self._items)

    def get(self, kind: str, key: str) -> Item | None:
        """Return what is held of a key."""
        return self._items.get((kind, key))

    def items(self) -> list[Item]:
        """Return what is held, by kind and key."""
        with self._lock:
            found = list(self._items.values())
        return sorted(found, key=lambda item: (item.kind, item.key))

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics: keys held per kind, and failures per kind and stage."""
        with self._lock:
            held = Counter(item.kind for item in self._items.values())
            failures = dict(self._failures)
        now = GaugeMetricFamily("pumice_set_aside", "Keys that are set aside", labels=["kind"])
        for kind in sorted({kind for kind, _ in failures}):
            now.add_metric([kind], held[kind])
        yield now
        ever = CounterMetricFamily(
            "pumice_set_aside_failures",
            "Failures for which a key was set aside",
            labels=["kind", "stage"],
        )
        for labels, count in sorted(failures.items()):
            ever.add_metric(labels, count)
        yield ever


REASON: Final = "SetAside"
"""Reason of the Kubernetes Event on an object that was set aside."""

_HANDLED_BY_CALLER: Final = (Retryable, Conflict, Rejected)
"""Errors that the handling of an object raises to its caller, who knows what to do about them."""

OnSetAside = Callable[[str, str, str, str], None]
"""Takes the token of a kind, a key, the uid if it is known, and one line for a person."""


class Containment:
    """Sets keys aside for one process; made once, by the composition root."""

    def __init__(
        self, set_aside: SetAside, *, clock: Clock, log: Logger, forget_after_s: float | None = None
    ) -> None:
        self._set_aside = set_aside
        self._forget_after_s = forget_after_s
        self._ends: dict[tuple[str, str], float] = {}
        """With `forget_after_s`: keys in the order in which they end, and when, monotonic."""
        self._clock = clock
        self._log = log
        self._tell: list[OnSetAside] = []
        self._traced: set[tuple[str, type, str, int]] = set()

    def on_news(self, tell: OnSetAside) -> None:
        """Have `tell` called for each key that is set aside for a new reason."""
        self._tell.append(tell)

    def isolate(self, kind: str, key: str, *, stage: str, uid: str = "") -> "Isolation":
        """Return a context in which one key is handled: an unexpected error sets the key aside."""
        return Isolation(self, kind, key, stage, uid)

    def failed(
        self, kind: str, key: str, *, stage: str, error: BaseException | str, uid: str = ""
    ) -> None:
        """Set a key aside, for an error or for a reason that is known."""
        reason = error if isinstance(error, str) else describe(error)
        news = self._set_aside.put(kind, key, stage=stage, reason=reason, now=self._clock.now())
        self._forget_later(kind, key)
        if not news:
            self._log.debug("set_aside_again", kind=kind, key=key, stage=stage, reason=reason)
            return
        trace = None if isinstance(error, str) or self._is_known(stage, error) else error
        self._log.error("set_aside", kind=kind, key=key, stage=stage, reason=reason, exc_info=trace)
        for tell in self._tell:
            tell(kind, key, uid, f"Left out until it changes: {stage}: {reason}")

    def _is_known(self, stage: str, error: BaseException) -> bool:
        """Tell whether the log has the traceback of such an error: thousands may fail the same."""
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
        """Take back what has not failed for long enough, and come again for the next one."""
        now = self._clock.monotonic()
        while self._ends:
            (kind, key), ends = next(iter(self._ends.items()))
            if ends > now:
                asyncio.get_running_loop().call_later(ends - now, self._forget_expired)
                return
            del self._ends[kind, key]
            self.gone(kind, key)

    def handled(self, kind: str, key: str, *, stage: str) -> None:
        """Take a key back that `stage` has handled well."""
        if len(self._set_aside) and self._set_aside.drop(kind, key, stage=stage):
            self._log.info("taken_back", kind=kind, key=key, stage=stage)

    def gone(self, kind: str, key: str) -> None:
        """Take a key back whose object is no more."""
        if len(self._set_aside):
            self._set_aside.drop(kind, key)

    def keep_only(self, kind: str, keys: Container[str], *, stage: str) -> None:
        """Take back what one stage has set aside of a kind, except these keys."""
        for item in self._set_aside.items() if len(self._set_aside) else ():
            if (item.kind, item.stage) == (kind, stage) and item.key not in keys:
                self._set_aside.drop(kind, item.key)

    def begin_anew(self, *, stage: str) -> None:
        """Take back what one stage has set aside: it handles everything once more."""
        self._set_aside.clear(stage=stage)


class Isolation:
    """The handling of one key; `error` says afterwards what it failed with, if it did."""

    __slots__ = ("_containment", "_key", "_kind", "_stage", "_uid", "error")

    def __init__(self, containment: Containment, kind: str, key: str, stage: str, uid: str) -> None:
        self._containment = containment
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
            self._containment.handled(self._kind, self._key, stage=self._stage)
            return False
        if isinstance(error, _HANDLED_BY_CALLER) or not isinstance(error, Exception):
            return False
        self.error = error
        self._containment.failed(
            self._kind, self._key, stage=self._stage, error=error, uid=self._uid
        )
        return True
