"""What a service could not handle and left out, so that everything else goes on.

An object, a job or a plugin whose handling fails with an unexpected error is set aside: its key is
put here with the reason, and the service goes on without it. The key is dropped when the same thing
is handled well, or is gone. Services put and drop; `/set-aside` of the health pages and the metrics
show what is held. The registry tells people; no service may decide by it, since it is bounded.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

MOST: Final = 1_000
"""Keys that are held; the one that has been here longest makes room for a new one."""
_MOST_LETTERS: Final = 500


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One key that was set aside."""

    kind: str
    """Token of `shared.api.kinds`, or another closed word such as `plugin`; a label of metrics."""
    key: str
    """`namespace/name` or `name`."""
    stage: str
    """What failed, as a closed word: `fold`, `judge`, `write`, ...; a label of metrics."""
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
    line = " ".join(text[: 2 * _MOST_LETTERS].split())
    line = line.encode("utf-8", "backslashreplace").decode()  # half a character cannot be shown
    return line if len(line) <= _MOST_LETTERS else f"{line[: _MOST_LETTERS - 3]}..."


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
            if before is None and len(self._items) >= MOST:
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
