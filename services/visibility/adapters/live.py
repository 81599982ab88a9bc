"""Queries of the live page: running jobs, the use of nodes, and readers of changes.

A reader checks once per second for a new state of the cluster and for new events. One that is slow
misses entries of the feed, the oldest first, and never that a list changed: one number stands for
all lists, and each of them is requested again. Events are decoded for readers: without any, the
latest are kept undecoded.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from typing_extensions import override

from pumice.events.envelope import decode_any
from services.visibility.adapters.recent_events import RecentEvents
from services.visibility.forecast.ends import stated_end
from services.visibility.interface import LiveQueries
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.live import EndOf, entry_of, node_uses, running_jobs
from shared.api.time import format_seconds
from shared.api.visibility import Change, NodeUse, RunningJob, TimelineEntry
from shared.runtime.clock import Clock

T = TypeVar("T")

LISTS: Final = ("pendingjobs", "runningjobs", "queuetrees", "nodeuses")
EVERY_S: Final = 1.0
KEEPALIVE_S: Final = 15.0
"""After so long without anything new a reader gets an empty change: the stream is alive."""
KEPT: Final = 200
"""Entries of the feed that a new reader gets, and that a slow one may be behind."""
_SEEN: Final = 4096
_REPEATS: Final = 2
"""Rounds after the last change in which lists are named once more: one may be a second old."""


class MirrorReader(Protocol):
    """The mirror's owner, as far as the live page needs it."""

    @property
    def version(self) -> int:
        """Return a number that is another one after each change."""

    def follow_closely(self) -> None:
        """Read each message as it comes for a while."""

    async def query(self, work: Callable[[ClusterMirror], T]) -> T:
        """Return what `work` finds. Raises Retryable while the state is not known."""


class _Lists(NamedTuple):
    """Lists of one moment."""

    version: int
    at_s: float
    running: Sequence[RunningJob]
    nodes: Sequence[NodeUse]


class _Reader:
    """One stream."""

    def __init__(self, namespace: str, version: int) -> None:
        self._namespace = namespace
        self._version = version
        self._repeats_left = 0
        self._entries: deque[TimelineEntry] = deque(maxlen=KEPT)

    def add(self, entry: TimelineEntry) -> None:
        """Queue an entry if it is of the namespace that is read."""
        if self._namespace in ("", entry.about.namespace):
            self._entries.append(entry)

    def take(self, version: int) -> Iterator[Change]:
        """Yield what is new since the last time."""
        while self._entries:
            yield Change(entry=self._entries.popleft())
        is_new, self._version = version != self._version, version
        self._repeats_left = _REPEATS + 1 if is_new else max(0, self._repeats_left - 1)
        if is_new or self._repeats_left == 1:
            yield Change(resources=LISTS)


class Live(LiveQueries):
    """The lists, the readers, and the latest entries of the feed."""

    def __init__(self, mirror: MirrorReader, *, clock: Clock, ends: EndOf = stated_end) -> None:
        self._mirror = mirror
        self._ends = ends
        self._clock = clock
        self._lists: _Lists | None = None
        self._readers: set[_Reader] = set()
        self._recent: deque[TimelineEntry] = deque(maxlen=KEPT)
        self._unread: deque[bytes] = deque(maxlen=KEPT)
        self._seen = RecentEvents(_SEEN)

    @override
    async def running_jobs(self, namespace: str = "") -> Sequence[RunningJob]:
        return [
            job
            for job in (await self._mirror.query(self._latest)).running
            if namespace in ("", job.metadata.namespace)
        ]

    @override
    async def node_uses(self) -> Sequence[NodeUse]:
        return (await self._mirror.query(self._latest)).nodes

    def _latest(self, mirror: ClusterMirror) -> _Lists:
        """Return lists of now, or of a moment ago: several pages request them at once."""
        known, now_s = self._lists, self._clock.monotonic()
        if known is None or (known.version != mirror.version and now_s - known.at_s >= EVERY_S):
            state = mirror.state
            known = _Lists(mirror.version, now_s, running_jobs(state, self._ends), node_uses(state))
            self._lists = known
        return known

    def add_events(self, events: Iterable[bytes]) -> None:
        """Pass events on to the readers; one that cannot be read is left out."""
        self._unread.extend(events)
        if self._readers:
            self._read()

    def _read(self) -> None:
        while self._unread:
            event = decode_any(self._unread.popleft())
            if not self._seen.is_new(event):
                continue
            entry = entry_of(event.data, format_seconds(event.time.timestamp()))
            if entry is not None:
                self._add(entry)

    def _add(self, entry: TimelineEntry) -> None:
        self._recent.append(entry)
        for reader in self._readers:
            reader.add(entry)

    @override
    async def changes(self, namespace: str = "") -> AsyncGenerator[Change, None]:
        reader = _Reader(namespace, self._mirror.version)
        self._read()
        for entry in self._recent:
            reader.add(entry)
        self._readers.add(reader)
        sent_s = self._clock.monotonic()
        try:
            while True:
                self._mirror.follow_closely()
                news = list(reader.take(self._mirror.version))
                if not news and self._clock.monotonic() - sent_s >= KEEPALIVE_S:
                    news = [Change()]
                for change in news:
                    yield change
                    sent_s = self._clock.monotonic()
                await self._clock.sleep(EVERY_S)
        finally:
            self._readers.discard(reader)
