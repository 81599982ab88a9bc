"""One direction of a connection: what is sent arrives later, in the order in which it was sent.

A connection delays and breaks, but it neither reorders nor repeats; two connections overtake each
other. That is what TCP promises, and a simulation that broke it would find what cannot happen.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")

REFUSAL: Final = "-ERR"
"""Receiver (`Frame.to`) of a message that names what the server refuses."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message on a connection, in either direction; `to` is the subscription it is for."""

    to: str = ""
    subject: str
    payload: bytes
    reply: str = ""
    headers: dict[str, str] | None = None


class SimulatedNetwork(Protocol):
    """The delays and losses of a network; the simulation has worse ones than `PerfectNetwork`."""

    def delay_s(self) -> float:
        """Return the delay of the next message in seconds."""
        ...

    def loses(self, subject: str, /) -> bool:
        """Return whether a message to the server that needs no reply is lost.

        Asked for acknowledgements of deliveries only: one that is lost stands for a reader that
        broke off right before it could send it.
        """
        ...


class PerfectNetwork:
    """Nothing is delayed and nothing lost."""

    def delay_s(self) -> float:
        """Return no delay."""
        return 0.0

    def loses(self, _subject: str, /) -> bool:
        """Lose nothing."""
        return False


class Link(Generic[T]):
    """Carries items to `arrive`, each with the delay of the network."""

    def __init__(self, arrive: Callable[[T], None], network: SimulatedNetwork) -> None:
        self._arrive = arrive
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._in_flight: deque[tuple[float, T]] = deque()
        self._armed = False
        self._cut = False
        self._held = False

    def send(self, item: T) -> None:
        """Send an item; it is lost when the link is cut before it arrives."""
        if self._cut:
            return
        due = self._loop.time() + self._network.delay_s()
        if self._in_flight:
            due = max(due, self._in_flight[-1][0])
        self._in_flight.append((due, item))
        self._arm()

    def cut(self) -> None:
        """Drop the messages in flight and all later ones."""
        self._cut = True
        self._in_flight.clear()

    def hold(self) -> None:
        """Let nothing arrive until `release`; nothing is lost."""
        self._held = True

    def release(self) -> None:
        """Deliver the delayed messages, in order."""
        self._held = False
        self._arm()

    def _arm(self) -> None:
        if self._held or self._armed or not self._in_flight:
            return
        self._armed = True
        due = self._in_flight[0][0]
        if due <= self._loop.time():
            self._loop.call_soon(self._drain)
        else:
            self._loop.call_at(due, self._drain)

    def _drain(self) -> None:
        self._armed = False
        now = self._loop.time()
        while not self._held and self._in_flight and self._in_flight[0][0] <= now:
            self._arrive(self._in_flight.popleft()[1])
        self._arm()
