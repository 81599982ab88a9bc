"""Log lines: JSON, context, redaction, and a stalled reader."""

import io
import json
import logging
import threading
from types import MappingProxyType

import pytest
import structlog

from shared.runtime.logs import LineWriter, configure
from tests.support.wait import until


@pytest.fixture
def logged():
    """Yield (log, read) where read() closes the log and returns its events."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    log, writer = configure(
        service="cache", instance="cache-1", level="info", form="json", stream=stream
    )

    def read():
        writer.close()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield log, read
    writer.close()
    root.handlers[:], root.level = before
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_a_line_is_json_with_service_instance_and_bound_context(logged) -> None:
    log, read = logged
    with structlog.contextvars.bound_contextvars(cycle=17):
        log.info("gang_placed", job="ns/a", nodes=4)
    log.debug("unseen")
    (event,) = read()
    assert event["event"] == "gang_placed"
    assert (event["service"], event["instance"], event["cycle"]) == ("cache", "cache-1", 17)
    assert (event["job"], event["nodes"], event["level"]) == ("ns/a", 4, "info")


@pytest.mark.parametrize(
    "values",
    [
        {"token": "s3cret"},
        {"nats_password": "s3cret"},
        {"headers": {"Authorization": "s3cret"}},
        {"user": {"client-key-data": "s3cret"}},
        {"items": [{"clientSecret": "s3cret"}]},
        {"url": "nats://pumice:s3cret@127.0.0.1:4222"},
        {"message": "sent Authorization: Bearer s3cret to it"},
        {"loud": "BEARER\ts3cret"},
        {"address": ("https://u:s3cret@host", 1)},
        {"password": b"s3cret"},
        {"frozen": MappingProxyType({"token": "s3cret"})},
    ],
    ids=lambda values: next(iter(values)),
)
def test_credentials_are_masked_at_any_depth(logged, values) -> None:
    log, read = logged
    log.warning("request_refused", **values)
    (event,) = read()
    assert "s3cret" not in json.dumps(event)
    assert "***" in json.dumps(event)


def test_a_credential_in_an_exception_is_masked_too(logged) -> None:
    log, read = logged
    try:
        int("nats://u:s3cret@host")
    except ValueError:
        log.exception("connect_failed")
    (event,) = read()
    assert "ValueError" in event["exception"]
    assert "s3cret" not in event["exception"]


def test_what_libraries_log_comes_out_in_the_same_form(logged) -> None:
    _, read = logged
    logging.getLogger("nats.aio").warning("lost %s", "nats://u:s3cret@host")
    (event,) = read()
    assert event["library"] == "nats.aio"
    assert event["message"] == "lost nats://u:***@host"


async def test_lines_that_come_together_are_written_together_and_in_order() -> None:
    written = []

    class Counted(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return super().write(text)

    stream = Counted()
    writer = LineWriter(stream)
    for number in range(2_000):
        writer.msg(str(number))
    await until(lambda: stream.getvalue().endswith("1999\n"), describe="the last line")
    assert stream.getvalue().split() == [str(number) for number in range(2_000)]
    assert len(written) < 200
    writer.close()


async def test_a_stalled_reader_costs_lines_not_time() -> None:
    gate = threading.Event()

    class Stalled(io.StringIO):
        def write(self, text: str) -> int:
            gate.wait()
            return super().write(text)

    writer = LineWriter(Stalled())
    for number in range(10_010):
        writer.msg(str(number))
    assert writer.dropped > 0
    gate.set()
    await until(writer._lines.empty, describe="the writer caught up")
    writer.close()
