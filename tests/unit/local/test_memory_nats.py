"""The NATS server in memory, as long as a cluster lives: its cost does not grow with its past."""

from collections import UserDict

import pytest

from pumice.embedded.memory_nats.consumer import NEVER, Consumer, PullRequest
from pumice.embedded.memory_nats.stream import NANO, MemoryStream
from pumice.embedded.memory_nats.subjects import Filter

KEPT = 2_000


class Counting(UserDict):
    """A dictionary that counts how often a key is looked for."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return key in self.data

    def get(self, key, default=None):
        self.looks += 1
        return self.data.get(key, default)


def stream(**config) -> tuple[MemoryStream, Counting]:
    """Return a stream, and how often it looks for a message."""
    usual = {
        "name": "EVENTS",
        "subjects": ["events.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_msgs_per_subject": -1,
        "max_bytes": -1,
        "max_age": 0,
        "duplicate_window": 0,
        "allow_msg_ttl": False,
    }
    made = MemoryStream({**usual, **config}, created="")
    counted = Counting()
    made._messages = counted  # type: ignore[assignment]  # it has what the stream asks of it
    return made, counted


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"max_bytes": KEPT * 100}, id="that is full"),
        pytest.param({"max_age": KEPT * NANO}, id="that is old"),
    ],
)
def test_a_stream_drops_its_oldest_messages_without_walking_through_those_that_are_gone(config):
    events, counted = stream(**config)
    for number in range(3 * KEPT):
        events.publish("events.a", b"x" * 62, None, now=float(number))
    assert 0 < len(events) <= KEPT + 1
    counted.looks = 0
    for number in range(3 * KEPT, 4 * KEPT):
        events.publish("events.a", b"x" * 62, None, now=float(number))
    assert counted.looks < 20 * KEPT


def test_a_consumer_looks_once_at_messages_that_it_does_not_take():
    events, counted = stream()
    heard = []

    def deliver(inbox, subject, payload, reply="", headers=None) -> bool:
        heard.append(subject)
        return True

    rare = Consumer(
        events,
        "rare",
        {"deliver_policy": "all", "ack_policy": "none", "filter_subjects": ["events.rare"]},
    )
    for _ in range(KEPT):
        events.publish("events.often", b"", None, now=0.0)

    def ask(now: float) -> None:
        rare.pull(
            PullRequest(
                inbox="inbox",
                left=1,
                no_wait=False,
                expires_at=NEVER,
                heartbeat_s=NEVER,
                last_request_at=now,
                deliver=deliver,
            ),
            now=now,
        )

    ask(0.0)
    counted.looks = 0
    for _ in range(100):
        rare.run(0.0)
    assert counted.looks < 1_000
    events.publish("events.rare", b"", None, now=0.0)
    rare.run(0.0)
    assert heard == ["events.rare"]


def test_a_filter_forgets_subjects_that_came_and_went():
    pods = Filter(["state.pods.>"])
    for number in range(50_000):
        assert pods.takes(f"state.pods.ns.{number}")
    assert len(pods._known) <= 20_000
