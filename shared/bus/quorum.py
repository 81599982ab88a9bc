"""Disconnects from a NATS server that is cut off from the majority of its cluster.

A stream with copies on several servers can be written only where the majority of them is. A server
that is cut off from the others keeps its clients: it answers pings, sends heartbeats, and serves
reads from what it has, without a sign that nothing new can come. It takes up to twenty seconds to
notice, and does not disconnect its clients then either. So each connection asks it every two
seconds for the state of the copies of one stream. When there was no good answer for some seconds,
the connection is closed; the next one is used only if its server gives a good answer.

With one server there is no other to connect to: for a stream without copies it is asked only once.
"""

from typing import Final

import msgspec

from shared.bus.api import STREAM_NOT_FOUND, Api, ApiError
from shared.bus.connection import BusConnection, BusSession
from shared.bus.errors import NoReply, NotPermitted, StreamMissing
from shared.runtime.clock import Clock
from shared.runtime.errors import Retryable

CHECK_EVERY_S: Final = 2.0
RETRY_S: Final = 0.5
ANSWER_S: Final = 2.0
SILENT_S: Final = 3.0
"""Copies that are silent for this long are lost to their leader, which receives from them each
second."""
GIVE_UP_S: Final = 7.0
"""How long there may be no good answer. Copies whose leader died choose another within four to nine
seconds, mostly less than seven, and no server has a good answer until then."""
_NANO: Final = 1_000_000_000


class _Copy(msgspec.Struct, frozen=True):
    active: int = 0
    """Nanoseconds since the leader received something from it."""
    offline: bool = False

    @property
    def is_current(self) -> bool:
        return not self.offline and self.active < SILENT_S * _NANO


class _Copies(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: list[_Copy] | None = None


class _Settings(msgspec.Struct, frozen=True):
    num_replicas: int = 1


class _Stream(msgspec.Struct, frozen=True):
    config: _Settings
    cluster: _Copies = _Copies()

    @property
    def is_copied(self) -> bool:
        return self.config.num_replicas > 1

    @property
    def fault(self) -> str:
        """Return why the stream cannot be written from here, "" if it can be."""
        if not self.is_copied:
            return ""
        if not self.cluster.leader:
            return "its copies have no leader"
        current = 1 + sum(copy.is_current for copy in self.cluster.replicas or ())
        if 2 * current <= self.config.num_replicas:
            return f"its leader reaches {current} of {self.config.num_replicas} copies"
        return ""


class QuorumCheck:
    """Watches over one connection by asking for the copies of `stream`."""

    def __init__(self, connection: BusConnection, api: Api, *, stream: str, clock: Clock) -> None:
        self._connection = connection
        self._api = api
        self._stream = stream
        self._clock = clock
        self._is_copied = False

    async def check(self) -> None:
        """Raise NoReply when the server of the new connection has lost the others."""
        fault = await self._fault()
        if fault:
            raise NoReply(f"the server has lost the others: {fault}")

    async def run(self) -> None:
        """Watch one session after the other until cancelled."""
        while True:
            session = await self._connection.session()
            if self._is_copied:
                await self._watch(session)
            await session.down.wait()

    async def _watch(self, session: BusSession) -> None:
        """Return when the session has ended."""
        good_at = self._clock.monotonic()
        while session.alive:
            fault = await self._fault()
            now = self._clock.monotonic()
            if not fault:
                good_at = now
            elif now - good_at >= GIVE_UP_S:
                self._connection.drop(session, f"the server has lost the others: {fault}")
            await self._clock.sleep(RETRY_S if fault else CHECK_EVERY_S)

    async def _fault(self) -> str:
        """Return why copied streams cannot be written through this server, "" if they can."""
        about = f"stream {self._stream}"
        try:
            found = await self._api.call(
                f"STREAM.INFO.{self._stream}", None, _Stream, about=about, timeout_s=ANSWER_S
            )
        except (NotPermitted, StreamMissing):
            return ""  # a user, or an account, that does not see the stream
        except Retryable as exc:
            return str(exc)
        if isinstance(found, ApiError):
            missing = found.err_code == STREAM_NOT_FOUND
            return "" if missing else f"{about}: {found.description}"
        self._is_copied = found.is_copied
        return f"{about}: {found.fault}" if found.fault else ""
