"""What a service goes on without is told, and does not make it unready."""

import asyncio

from shared.runtime.health import Readiness


async def test_a_note_leaves_the_gates_open_and_goes_when_it_is_over() -> None:
    readiness = Readiness()
    readiness.gate("state").set(ok=True)
    readiness.note("reader of EVENTS", "maximum consumers limit reached")
    assert readiness.shut() == []
    async with asyncio.timeout(5):
        await readiness.wait()
    said = {"gate": "reader of EVENTS", "reason": "maximum consumers limit reached"}
    assert readiness.notes() == [said]
    readiness.note("reader of EVENTS", "")
    assert readiness.notes() == []
