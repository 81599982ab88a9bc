"""Time-outs of questions to the bus are watched over while there are questions, and only then."""

import asyncio
from contextlib import suppress

import pytest
from typing_extensions import override

from shared.bus.errors import NoReply
from shared.bus.replies import SWEEP_S, Outgoing, Replies
from tests.support.clock import VirtualClock, settle


class Counting(VirtualClock):
    """Counts who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    @override
    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await super().sleep(seconds)


async def test_time_outs_are_looked_for_while_a_question_is_open_and_not_before_or_after() -> None:
    clock = Counting()
    replies = Replies(inbox="_INBOX.a", clock=clock)
    watching = asyncio.create_task(replies.run())
    await clock.advance(1.0)
    assert clock.sleeps == 0
    answer = await replies.request(Outgoing("s", b"", repeatable=True), timeout_s=0.5)
    await clock.advance(0.5 + SWEEP_S)
    with pytest.raises(NoReply):
        await answer
    looked = clock.sleeps
    assert looked >= 0.5 / SWEEP_S
    await clock.advance(1.0)
    assert clock.sleeps == looked
    second = await replies.request(Outgoing("s", b"", repeatable=True), timeout_s=0.5)
    await clock.advance(0.5 + SWEEP_S)
    assert isinstance(second.exception(), NoReply)
    watching.cancel()
    await settle()
    with suppress(asyncio.CancelledError):
        await watching
