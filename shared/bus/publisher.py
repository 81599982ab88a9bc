"""Publishing with a known result for every message: acknowledged, rejected or no reply."""

from collections.abc import Awaitable, Collection, Mapping
from typing import Final

from shared.bus.fenced import FencedStreams
from shared.bus.replies import Outgoing
from shared.bus.sender import LAST, LAST_OF, MSG_ID, StreamSender
from shared.bus.values import Ack, FencingToken, Message

_TTL: Final = "Nats-TTL"
_ROLLUP: Final = "Nats-Rollup"


def is_fenced(message: Message, subjects: Collection[str]) -> bool:
    """Tell whether a message was published under a leader's right: with the token of a subject.

    The server has compared the token. Only a publish without one can have come from another.
    """
    headers = message.headers or {}
    return headers.get(LAST_OF) in subjects and headers.get(LAST, "0").strip("0") != ""


class Publisher:
    """Publishes to one stream and reports the result of each message."""

    def __init__(self, sender: StreamSender, *, fenced: FencedStreams) -> None:
        self._sender = sender
        self._fenced = fenced

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        fence: FencingToken | None = None,
        expect_last: int | None = None,
        ttl_s: int | None = None,
        rollup: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Ack:
        """Publish and wait for the server's answer.

        With `msg_id` the message is sent again under the same id until it is answered (the server
        drops duplicates); without one it is sent once. `fence` and `expect_last` (the last
        sequence of this very subject; 0: there is none) exclude each other; a publish with
        `expect_last` is sent once, because the server checks it before the id. With `rollup` the
        message takes the place of all earlier ones of its subject, where its stream lets it.
        Readers find `headers` with the message. Raises
        WrongSequence, StreamFull, StreamMissing, NoReply, TooLarge, NotPermitted or Rejected.
        """
        pending = await self.submit(
            subject,
            payload,
            msg_id=msg_id,
            fence=fence,
            expect_last=expect_last,
            ttl_s=ttl_s,
            rollup=rollup,
            headers=headers,
        )
        return await pending

    async def submit(
        self,
        subject: str,
        payload: bytes,
        *,
        msg_id: str | None = None,
        fence: FencingToken | None = None,
        expect_last: int | None = None,
        ttl_s: int | None = None,
        rollup: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Awaitable[Ack]:
        """Send once there is room among the messages in flight; the answer is awaited later.

        The same as `publish` otherwise, which is how many messages are published at once.
        """
        all_headers = _headers(msg_id=msg_id, fence=fence, expect_last=expect_last, ttl_s=ttl_s)
        all_headers.update(headers or {})
        if rollup:
            all_headers[_ROLLUP] = "sub"
        repeatable = msg_id is not None and expect_last is None
        message = Outgoing(subject, payload, all_headers or None, repeatable)
        if fence is None:
            return await self._sender.send_with_room(message)
        return await self._fenced.of(self._sender.stream).submit(message)


def _headers(
    *, msg_id: str | None, fence: FencingToken | None, expect_last: int | None, ttl_s: int | None
) -> dict[str, str]:
    assert fence is None or expect_last is None, "a publish is fenced or compared, not both"
    headers: dict[str, str] = {}
    if msg_id is not None:
        headers[MSG_ID] = msg_id
    if fence is not None:
        headers[LAST] = str(fence.sequence)
        headers[LAST_OF] = fence.subject
    if expect_last is not None:
        headers[LAST] = str(expect_last)
    if ttl_s is not None:
        headers[_TTL] = str(ttl_s)
    return headers
