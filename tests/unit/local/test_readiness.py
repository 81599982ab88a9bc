"""What a service waits for is told in a line for a person."""

import msgspec
import pytest

from pumice.local import readiness
from pumice.local.ports import free_port
from shared.runtime.clock import SystemClock
from shared.runtime.health import HealthServer, Liveness, Readiness
from shared.runtime.quarantine import QuarantineRegistry


def page(**gates):
    return msgspec.json.encode(
        [{"gate": name.replace("_", "-"), "reason": reason} for name, reason in gates.items()]
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (page(**{f"watch_{n}": "not started" for n in range(25)}), "25 lists outstanding"),
        (page(watch_pods=""), "1 list outstanding"),
        (
            page(**{f"watch_{n}": "cannot connect" for n in range(3)}, nats="no server answers"),
            "3 lists outstanding (cannot connect), nats (no server answers)",
        ),
        (page(state="no marker"), "state (no marker)"),
        (page(commands_0="", commands_1=""), "2 partitions of commands outstanding"),
        (b"<html>gateway</html>", "<html>gateway</html>"),
    ],
)
def test_gates_that_are_shut_are_counted_by_family(body, said):
    assert readiness.message_of(body) == said


def test_a_line_stays_a_line_however_long_the_reason():
    said = readiness.message_of(page(nats="x\n" * 3000))
    assert len(said) < 200
    assert "\n" not in said


async def test_a_service_is_asked_over_http():
    gates = Readiness()
    gates.gate("watch-pods")
    server = HealthServer(
        readiness=gates,
        liveness=Liveness(),
        metrics=None,
        quarantined=QuarantineRegistry(),
        clock=SystemClock(),
    )
    port = free_port()
    assert "refused" in await readiness.missing(f"127.0.0.1:{port}")
    await server.start(f"127.0.0.1:{port}")
    assert await readiness.missing(f"127.0.0.1:{port}") == "1 list outstanding"
    gates.gate("watch-pods").set(ok=True)
    assert await readiness.missing(f"127.0.0.1:{port}") == ""
    await server._runner.cleanup()
