"""All services in one process, on one event loop, with the bus in memory.

Started by `pumice run --in-process` as `python -P -m pumice.local.in_process`, and started again
when it ends (`pumice.local.services.InProcessServices`). Each service has its settings, its health
pages and its logger as in a process of its own; only the client of the bus is another. The bus
begins empty: the cache fills it from the API server, and what was under way is decided again.

The loop may be woken as often as the service which may be woken most often. The first part of any
service that fails ends the process with one line that names the service: on one loop, a service
that continues beside a dead one is no safer than one that starts again. Passwords and the key of
STATE are read from the files in the data directory, and are in no argument.
"""

import importlib
import os
import random
import socket
import sys
from asyncio import Event, Runner
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec

from pumice.embedded.memory_nats.client import MemoryClient
from pumice.embedded.memory_nats.listener import NatsAccount, NatsListener
from pumice.embedded.memory_nats.server import MemoryNats
from pumice.local.declaring import declare
from pumice.local.names import IN_PROCESS
from pumice.local.nats import Users
from pumice.local.ports import LOOPBACK
from pumice.local.services import ProcessArguments, parse_arguments, settings_type
from shared.contracts.permissions import EVENTS, permissions
from shared.contracts.streams import MIB, Streams, streams
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.logs import LineWriter, configure, of_service, stderr
from shared.runtime.service import (
    Build,
    Ended,
    end,
    generated_name,
    serve,
    tune_garbage_collector,
    until_signal,
)
from shared.runtime.settings import WRONG_SETTINGS, load
from shared.runtime.tasks import TaskGroup

_LEVELS: Final = ("debug", "info", "warning", "error")
_KEPT_BYTES: Final = 64 * MIB
"""Size limit of each stream that only reports: events and outcomes."""
_WITHOUT_BUS: Final = frozenset({"admission"})

Settings = Mapping[str, CommonSettings]
"""Service → its settings."""


def main() -> None:
    """Run all services until a signal or a failure, then exit the process."""
    arguments = parse_arguments(sys.argv[1:])
    users = Users(Path(arguments.directory), arguments.cluster)
    try:
        settings = _settings(arguments, users)
    except Rejected as error:
        end(WRONG_SETTINGS, str(error))
    levels = [each.log_level for each in settings.values()]
    _, writer = configure(
        service=IN_PROCESS,
        instance=socket.gethostname(),
        level=min(levels, key=_LEVELS.index),
        form=next(iter(settings.values())).log_format,
        stream=stderr(),
    )
    tune_garbage_collector()
    together = partial(_serve_all, arguments, settings, users.passwords[EVENTS], writer)
    with Runner() as runner:
        code, message = runner.run(until_signal(together))
    writer.close()
    end(code, message)


def _settings(arguments: ProcessArguments, users: Users) -> Settings:
    """Return the settings of each service. Raises Rejected that names the service."""
    settings: dict[str, CommonSettings] = {}
    for service, flags in arguments.flags.items():
        environ = {**os.environ, **users.environ(service)}
        kind = settings_type(service)
        try:
            settings[service] = load(kind, service=service, argv=flags, environ=environ)
        except Rejected as error:
            raise Rejected(f"{service}: {error}") from error
    return settings


async def _serve_all(
    arguments: ProcessArguments,
    settings: Settings,
    password: str,
    writer: LineWriter,
    *,
    stop: Event,
) -> Ended:
    """Run the bus and the services on it; return the first failure."""
    subscriber = permissions(arguments.cluster)[EVENTS]
    memory = MemoryNats(wall=SystemClock().now, permissions={EVENTS: subscriber.publish})
    account = NatsAccount(password=password, subscribe=subscriber.subscribe)
    listener = NatsListener(memory, {EVENTS: account})
    await declare(
        _streams(arguments.cluster), arguments.cluster, dial=partial(MemoryClient, memory)
    )
    try:
        await listener.start(LOOPBACK, arguments.port)
    except OSError as error:
        return WRONG_SETTINGS, f"the bus cannot listen at {LOOPBACK}:{arguments.port}: {error}"
    failures: list[Ended] = []

    async def keep(service: str) -> None:
        try:
            code, message = await _serve_one(service, settings[service], memory, writer, stop)
        finally:
            stop.set()
        if code:
            failures.append((code, f"{service}: {message}"))

    async with TaskGroup() as tasks:
        for service in settings:
            tasks.create_task(keep(service), name=service)
    await listener.stop()
    return failures[0] if failures else (0, "")


async def _serve_one(
    service: str, settings: CommonSettings, memory: MemoryNats, writer: LineWriter, stop: Event
) -> Ended:
    rng = random.Random()  # noqa: S311 - jitter and names, no secrets
    instance = settings.instance or generated_name(service, rng)
    log = of_service(writer, service=service, instance=instance, level=settings.log_level)
    return await serve(
        service=service,
        instance=instance,
        settings=settings,
        build=_build(service, memory),
        rng=rng,
        log=log,
        stop=stop,
    )


def _build(service: str, memory: MemoryNats) -> Build[CommonSettings]:
    """Return what composes a service on the bus in memory."""
    build = importlib.import_module(f"services.{service}.app").build
    made = build if service in _WITHOUT_BUS else partial(build, dial=partial(MemoryClient, memory))
    return cast("Build[CommonSettings]", made)


def _streams(cluster: str) -> Streams:
    """Return the streams of a bus whose memory is also the services'."""
    declared = streams(cluster, events_bytes=_KEPT_BYTES)
    outcome = msgspec.structs.replace(declared.outcome, max_bytes=_KEPT_BYTES)
    return msgspec.structs.replace(declared, outcome=outcome)


if __name__ == "__main__":
    main()
