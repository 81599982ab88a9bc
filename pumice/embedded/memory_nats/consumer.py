"""One consumer of a stream: its deliveries by reader, and those that it has to repeat.

Readers request batches; the consumer answers with messages as long as there are some, and with
nats-server's status words (404 nothing there, 408 the request is too old, 100 still alive)
otherwise. Two kinds are needed: without acknowledgements for who follows a stream, and with
explicit ones for a work queue. Synchronous: times are arguments, in seconds of the server's
monotonic clock, and `due` says when `run` has something to do next.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from pumice.embedded.memory_nats.stream import NANO, MemoryStream, StoredMessage
from pumice.embedded.memory_nats.subjects import Filter

NEVER: Final = float("inf")

Deliver = Callable[[str, str, bytes, str, dict[str, str] | None], bool]
"""`deliver(inbox, subject, payload, reply, headers)`: false when it has no listener any more."""


class PullRequest(msgspec.Struct, kw_only=True, eq=False):
    """A reader's pull request for up to `left` messages, sent to `inbox`."""

    inbox: str
    left: int
    no_wait: bool
    expires_at: float
    heartbeat_s: float
    last_request_at: float
    """When something was sent to the reader last."""
    deliver: Deliver

    def send_status(self, status: str, description: str) -> bool:
        """Send a status; return whether there is a listener."""
        headers = {"Status": status, "Description": description}
        return self.deliver(self.inbox, self.inbox, b"", "", headers)

    @property
    def due(self) -> float:
        """Return when a status is due: a heartbeat, or the end of the request."""
        return min(self.expires_at, self.last_request_at + self.heartbeat_s)


class _Unacknowledged(msgspec.Struct):
    """A delivery that is not acknowledged yet."""

    due: float
    """When it is delivered again."""
    attempt: int


class Consumer:
    """Make the consumer; `config` has the server's names and nanoseconds."""

    def __init__(self, stream: MemoryStream, name: str, config: dict[str, Any]) -> None:
        self.stream: Final = stream
        self.name: Final = name
        self.config = config
        self.filter = Filter(config.get("filter_subjects", ()))
        self.used_at = 0.0
        self._delivered = 0
        self._unacknowledged: dict[int, _Unacknowledged] = {}
        self._waiting: deque[PullRequest] = deque()
        self._chosen, self._next = self._start()

    @property
    def durable(self) -> bool:
        """Return whether it stays without a reader."""
        return "durable_name" in self.config

    @property
    def explicit(self) -> bool:
        """Return whether deliveries need an acknowledgement."""
        return bool(self.config["ack_policy"] == "explicit")

    @property
    def in_progress(self) -> int:
        """Return how many deliveries wait for their acknowledgement."""
        return len(self._unacknowledged)

    @property
    def redelivered(self) -> int:
        """Return how many of those were delivered more than once."""
        return sum(given.attempt > 1 for given in self._unacknowledged.values())

    @property
    def idle(self) -> bool:
        """Return whether no reader waits for messages."""
        return not self._waiting

    @property
    def due(self) -> float:
        """Return when `run` has to be called at the latest."""
        times = [request.due for request in self._waiting]
        if self._waiting and self._unacknowledged:
            times.append(min(given.due for given in self._unacknowledged.values()))
        return min(times, default=NEVER)

    def pending(self) -> int:
        """Return how many messages were not delivered yet."""
        chosen = sum(self.stream.get(sequence) is not None for sequence in self._chosen)
        return chosen + sum(
            self.filter.takes(stored.subject) for stored in self.stream.messages(self._next)
        )

    def pull(self, request: PullRequest, *, now: float) -> None:
        """Add a reader's pull request."""
        self.used_at = now
        self._waiting.append(request)
        self.run(now)

    def response(self, sequence: int, reply: bytes, *, now: float) -> None:
        """Process a reader's acknowledgement of a delivery."""
        given = self._unacknowledged.get(sequence)
        if given is None:
            return
        match reply.split(b" ", 1):
            case [b"-NAK", options]:
                given.due = now + msgspec.json.decode(options)["delay"] / NANO
            case [b"-NAK"]:
                given.due = now
            case [b"+WPI"]:
                given.due = now + self._ack_wait_s
            case _:  # +ACK and +TERM: no difference to what happens next
                del self._unacknowledged[sequence]
                if self.stream.is_queue:
                    self.stream.remove(sequence)
        self.run(now)

    def run(self, now: float) -> None:
        """Deliver what can be delivered, and send the statuses that are due."""
        while self._waiting:
            request = self._waiting[0]
            stored = self._take(now)
            if stored is None:
                break
            if not self._deliver(request, stored, now):
                self._waiting.popleft()
        self._close_empty()
        self._send_statuses(now)

    def restart(self, now: float) -> None:
        """Forget the readers; messages that were not acknowledged are delivered again."""
        self._waiting.clear()
        for given in self._unacknowledged.values():
            given.due = min(given.due, now + self._ack_wait_s)

    def take_waiting(self) -> list[PullRequest]:
        """Return the waiting requests, and forget them without a reply."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def end(self) -> None:
        """Send all waiting readers the status that the consumer is gone."""
        for request in self._waiting:
            request.send_status("409", "Consumer Deleted")
        self._waiting.clear()

    @property
    def _ack_wait_s(self) -> float:
        return float(self.config["ack_wait"] / NANO)

    def _start(self) -> tuple[deque[int], int]:
        """Return the sequences to deliver first, and where to continue behind them."""
        match self.config["deliver_policy"]:
            case "last_per_subject":
                chosen = deque(stored.sequence for stored in self.stream.lasts(self.filter))
                return chosen, self.stream.last_seq + 1
            case "by_start_sequence":
                return deque(), int(self.config["opt_start_seq"])
            case "by_start_time":
                return deque(), self.stream.first_since(self.config["opt_start_time"])
            case "new":
                return deque(), self.stream.last_seq + 1
            case _:
                return deque(), 0

    def _take(self, now: float) -> tuple[StoredMessage, int] | None:
        """Return the message to deliver next and its attempt, or None."""
        for sequence, given in list(self._unacknowledged.items()):
            if given.due > now:
                continue
            stored = self.stream.get(sequence)
            if stored is not None:
                return stored, given.attempt + 1
            del self._unacknowledged[sequence]
        if self.explicit and len(self._unacknowledged) >= self.config["max_ack_pending"]:
            return None
        while self._chosen:
            stored = self.stream.get(self._chosen[0])
            if stored is not None:
                return stored, 1
            self._chosen.popleft()
        stored = self.stream.next_from(self._next, self.filter)
        passed = stored.sequence if stored is not None else self.stream.last_seq + 1
        self._next = max(self._next, passed)  # messages that the filter rejects are checked once
        return (stored, 1) if stored is not None else None

    def _deliver(self, request: PullRequest, taken: tuple[StoredMessage, int], now: float) -> bool:
        """Give a message to a reader; false when the reader is gone or has enough."""
        stored, attempt = taken
        reply = (
            f"$JS.ACK.{self.stream.config['name']}.{self.name}.{attempt}.{stored.sequence}."
            f"{self._delivered + 1}.{int(stored.time * NANO)}.0"
        )
        headers = dict(stored.headers) if stored.headers else None
        if not request.deliver(request.inbox, stored.subject, stored.payload, reply, headers):
            return False
        self._delivered += 1
        if attempt == 1:
            if self._chosen and self._chosen[0] == stored.sequence:
                self._chosen.popleft()
            else:
                self._next = stored.sequence + 1
        if self.explicit:
            self._unacknowledged.pop(stored.sequence, None)  # to the end: redeliveries take turns
            self._unacknowledged[stored.sequence] = _Unacknowledged(now + self._ack_wait_s, attempt)
        request.left -= 1
        request.last_request_at = now
        self.used_at = now
        return request.left > 0

    def _close_empty(self) -> None:
        """Reply to the requests that do not wait (`no_wait`)."""
        keep: deque[PullRequest] = deque()
        for request in self._waiting:
            if request.no_wait:
                request.send_status("404", "No Messages")
            else:
                keep.append(request)
        self._waiting = keep

    def _send_statuses(self, now: float) -> None:
        """Send heartbeats, and end requests that have become too old."""
        keep: deque[PullRequest] = deque()
        for request in self._waiting:
            if request.expires_at <= now:
                request.send_status("408", "Request Timeout")
            elif request.last_request_at + request.heartbeat_s > now:
                keep.append(request)
            elif request.send_status("100", "Idle Heartbeat"):
                request.last_request_at = now
                keep.append(request)
        self._waiting = keep
        if keep:
            self.used_at = now
