"""The whole local stack in one object: the control plane, fake nodes and our services.

The demo, `pumice up` (through `holder`) and the restart tests use it as an async context manager:

    async with LocalStack(StackOptions(plane=Options(directory=d)), await ensure(print)) as stack:
        ...  # stack.plane.kubeconfig, stack.services["cache"], stack.supervisor().run()
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from pumice.local import admin, layout
from pumice.local.control_plane import Api, ControlPlaneOptions
from pumice.local.embedded import plane_of
from pumice.local.files import write_private
from pumice.local.fleet import Fleet, NodeShape
from pumice.local.names import SERVICES
from pumice.local.services import (
    READY_S,
    Service,
    ServiceSettings,
    Supervised,
    Supervisor,
    all_ready,
)
from shared.runtime.tasks import TaskGroup

_STOP_S: Final = 12.0
_OF_ONE_PERSON: Final = {"controller": ("--queue-commands-from=*",)}
"""Flags for a cluster in which each user of the API server is its administrator."""


class StackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a local stack."""

    plane: ControlPlaneOptions
    fleet: Fleet = Fleet(nodes=(NodeShape(),))
    services: tuple[str, ...] = SERVICES
    """Services to start; repeat a name for replicas. Empty: the control plane alone."""
    flags: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Further flags per service."""


def _quiet(_: str) -> None:
    """Take a line of progress and keep it."""


class LocalStack:
    """Starts everything in order and leaves nothing running, however it ends."""

    def __init__(
        self,
        options: StackOptions,
        binaries: Mapping[str, Path],
        *,
        report: Callable[[str], None] = _quiet,
    ) -> None:
        self.options = options
        self.plane = plane_of(options.plane, binaries)
        self.services: dict[str, Service] = {}
        self._report = report
        settings = ServiceSettings(
            kubeconfig=self.plane.kubeconfig,
            nats_url=self.plane.nats.url,
            nats=self.plane.nats,
            cluster=options.plane.cluster,
            installation=f"{options.plane.cluster}-cluster",
            logs=self.plane.logs,
            data=self.plane.logs.parent,
        )
        for service in options.services:
            instance = _next_name(service, self.services)
            flags = (*_OF_ONE_PERSON.get(service, ()), *options.flags.get(service, ()))
            self.services[instance] = Service(service, settings, instance=instance, flags=flags)

    async def start(self) -> None:
        """Start everything and wait until it is ready.

        Raises LocalError that names those that are not and why, after stopping the others.
        """
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(self.stop)
            await self.plane.start()
            self._report(f"the API server answers at {self.plane.url}")
            await self.plane.apply_crds()
            await self.plane.apply_roles()
            for service in self.services.values():
                service.process.start()
            await self._add_machines()
            if self.services:
                await all_ready(self.services.values(), report=self._report, patient=False)
                await self._queue_open()
                self._report(f"ready: {', '.join(self.services)}")
            on_failure.pop_all()

    async def _add_machines(self) -> None:
        fleet = self.options.fleet
        if fleet.count:
            await self.plane.add_nodes(*fleet.nodes)
            self._report(f"{fleet.count} fake nodes are ready")
        if fleet.hyper_nodes:
            await self.plane.add_hyper_nodes(*fleet.hyper_nodes)
            self._report(f"{len(fleet.hyper_nodes)} HyperNodes are there")

    async def _queue_open(self) -> None:
        """Wait for the queue that jobs go to; without it admission refuses the first one."""
        controller = self.services.get("controller")
        if controller is None:
            return
        async with admin.connect(self.plane.url, self.plane.pki) as client:
            await controller.process.ready(client.queue_open, deadline_s=READY_S)

    async def stop(self) -> None:
        """Stop the services, then the control plane."""
        async with AsyncExitStack() as finally_:
            finally_.push_async_callback(self.plane.stop)
            async with TaskGroup() as tasks:
                for service in self.services.values():
                    tasks.create_task(service.process.stop(grace_s=_STOP_S), name=service.name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def supervisor(self, *, report: Callable[[str], None] | None = None) -> Supervisor:
        """Return what restarts programs that die; run it while the stack is up."""

        def supervised(name: str) -> Supervised:
            return Supervised(
                process=self.plane.processes[name],
                start=lambda: self.plane.start_program(name),
                needs_restart=self.plane.nats.needs_restart if name == "nats-server" else None,
            )

        parts = [supervised(name) for name in self.plane.processes]
        own = [Supervised(process=s.process, start=s.start) for s in self.services.values()]
        return Supervisor([*parts, *own], report=report or self._report)

    def deaths(self) -> list[str]:
        """Return one line per program that has ended and not been started again."""
        processes = [
            *self.plane.processes.values(),
            *(service.process for service in self.services.values()),
        ]
        return [process.describe_end() for process in processes if process.exit_code is not None]


def _next_name(service: str, taken: Mapping[str, object]) -> str:
    number = 1
    while (name := service if number == 1 else f"{service}-{number}") in taken:
        number += 1
    return name


class HolderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The stack that the holder runs, and the paths of its programs."""

    stack: StackOptions
    binaries: Mapping[str, Path]
    flags: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The flags of `pumice up` that led to it, for the next start (`pumice.cli.saved_flags`)."""


def write_holder_config(directory: Path, config: HolderConfig) -> None:
    """Write the configuration of the holder into the data directory."""
    write_private(directory / layout.ORDER, msgspec.json.encode(config, enc_hook=str).decode())


def read_holder_config(directory: Path) -> HolderConfig:
    """Return the configuration that `pumice up` wrote."""
    return msgspec.json.decode(
        (directory / layout.ORDER).read_bytes(), type=HolderConfig, dec_hook=_path_from_text
    )


def order_of(directory: Path) -> HolderConfig | None:
    """Return the configuration of the last start, None when there is none that can be read."""
    try:
        return read_holder_config(directory)
    except (OSError, msgspec.DecodeError):
        return None


def api_of(directory: Path) -> Api | None:
    """Return the kind of API server whose data a directory holds, None when it holds none."""
    if (directory / "etcd").is_dir():
        return "real"
    return "embedded" if (directory / "objects.jsonl").is_file() else None


def _path_from_text(kind: type, value: Any) -> Any:  # noqa: ANN401 - a hook of msgspec
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)
