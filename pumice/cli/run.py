"""Run the services against an existing cluster, in the foreground, until a signal.

Each service is a process of its own; one that dies is started again. A nats-server is started
too unless --nats names one, whose user and password come from PUMICE_NATS_USER and
PUMICE_NATS_PASSWORD (or PUMICE_NATS_PASSWORD_FILE). With --in-process all services are one process
on one event loop, with a bus in memory in place of nats-server; that process is started again as a
whole, and events from before its start are gone.

All flags of the services are taken too: bare when one service has it (--schedule-period=1s) or
when all have it in common (--log-level=debug), else with the service in front
(--scheduler.kube-api-qps=100). `pumice run --flags` lists them.
"""

import argparse
import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from pumice.cli import serving
from pumice.cli.data_directory import events_hint
from pumice.local import parts, state
from pumice.local.declaring import Declaring
from pumice.local.errors import WrongSettingError, unwrapped
from pumice.local.nats import NatsServer
from pumice.local.ports import LOOPBACK, free_port
from pumice.local.process import Process
from pumice.local.services import (
    Hosted,
    InProcessServices,
    Service,
    ServiceSettings,
    Supervised,
    Supervisor,
    all_ready,
)
from shared.kube.sources import KubeconfigSource
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.settings import load
from shared.runtime.tasks import TaskGroup

_NATS: Final = "nats"
"""Folder of the bus in the data directory."""
_STOP_S: Final = 12.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own flags; the services' flags are routed."""
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config"
    )
    parser.add_argument("--nats", metavar="URL", help="NATS server to use; default: start one")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="keep the data of our NATS server there"
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="all services in one process with the bus in memory: less CPU and memory, one core",
    )
    serving.add_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Run until a signal. Raises LocalError when something cannot even start."""
    if args.flags:
        print(serving.flags_page())
        return 0
    flags = serving.flags_of(args)
    if args.in_process and args.nats:
        raise WrongSettingError("--in-process has its bus in memory: leave out --nats")
    kubeconfig = _kubeconfig(args.kubeconfig)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with unwrapped(), _data_directory(args.data_dir) as data:
        async with TaskGroup() as tasks:
            running = tasks.create_task(_serve(args, kubeconfig, flags, data), name="services")
            await stop.wait()
            running.cancel()
    _print("stopped")
    return 0


async def _serve(
    args: argparse.Namespace,
    kubeconfig: Path | None,
    flags: Mapping[str, tuple[str, ...]],
    data: Path,
) -> None:
    async with AsyncExitStack() as stack:
        bus = await _bus(args, data, stack)
        settings = ServiceSettings(
            kubeconfig=kubeconfig,
            nats_url=bus.url,
            nats=bus.nats,
            cluster=args.cluster,
            installation=f"{args.cluster}-{secrets.token_hex(4)}",
            logs=args.log_dir,
            log_format="json" if args.log_dir else "console",
            data=data,
        )
        services, programs = _services(args, settings, flags, data)
        stack.push_async_callback(_stop_all, [program.process for program in programs])
        for program in programs:
            program.process.start()
        for service in services:
            _print(f"{service.name} listens on {service.address} (pid {service.process.pid})")

        def write_state(*, phase: Literal["starting", "ready"]) -> None:
            if bus.is_ours:
                state.write(data, _state(bus.url, services, phase=phase, kubeconfig=kubeconfig))

        async def start_again(program: Service | InProcessServices) -> None:
            await program.start()
            write_state(phase="ready")

        write_state(phase="starting")
        await all_ready(services, report=_print, patient=True)
        write_state(phase="ready")
        _print("everything is ready; Ctrl-C stops it")
        again = [
            Supervised(process=program.process, start=partial(start_again, program))
            for program in programs
        ]
        await Supervisor([*bus.supervised, *again], report=_print).run()


class _Bus(msgspec.Struct, frozen=True, kw_only=True):
    """The bus that the services use."""

    url: str
    nats: NatsServer | None = None
    """Our server, if there is one."""
    is_ours: bool = True
    """Whether it ends with this command."""

    @property
    def supervised(self) -> list[Supervised]:
        """Return the program to start again when it dies: our server, if there is one."""
        nats = self.nats
        if nats is None:
            return []
        return [
            Supervised(process=nats.process, start=nats.start, needs_restart=nats.needs_restart)
        ]


async def _bus(args: argparse.Namespace, data: Path, stack: AsyncExitStack) -> _Bus:
    """Return the bus, started if it is a server of ours; `stack` ends it."""
    if args.nats:
        await _declare_elsewhere(args, stack)
        return _Bus(url=args.nats, is_ours=False)
    stack.callback(state.forget, data)
    if args.in_process:
        bus = _Bus(url=f"nats://{LOOPBACK}:{free_port()}")
    else:
        nats = NatsServer(
            binary=parts.nats_server_binary(), directory=data / _NATS, cluster=args.cluster
        )
        stack.push_async_callback(nats.stop)
        await nats.start()
        _print(f"nats-server listens on {nats.url}")
        bus = _Bus(url=nats.url, nats=nats)
    for line in events_hint(_state(bus.url, (), phase="ready"), data):
        _print(line)
    return bus


async def _declare_elsewhere(args: argparse.Namespace, stack: AsyncExitStack) -> None:
    """Declare the streams on a server of others, as far as our user there may."""
    given = [f"--nats={args.nats}", f"--cluster={args.cluster}"]
    declaring = Declaring(load(CommonSettings, service="run", argv=given, environ=os.environ))
    stack.push_async_callback(declaring.stop)
    declaring.begin(report=_print)


def _services(
    args: argparse.Namespace,
    settings: ServiceSettings,
    flags: Mapping[str, tuple[str, ...]],
    data: Path,
) -> tuple[Sequence[Hosted], Sequence[Service | InProcessServices]]:
    """Return the services, and the programs that they live in."""
    if args.in_process:
        together = InProcessServices(settings, data / _NATS, flags=flags)
        return together.services, [together]
    alone = [Service(service, settings, flags=own) for service, own in flags.items()]
    return alone, alone


async def _stop_all(processes: list[Process]) -> None:
    async with TaskGroup() as tasks:
        for process in processes:
            tasks.create_task(process.stop(grace_s=_STOP_S), name=process.name)


def _kubeconfig(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the kubeconfig to use; None when each service shall find its cluster itself.

    Raises WrongSettingError or Rejected for one that cannot be used.
    """
    if given is not None:
        chosen = str(serving.existing(given, "--kubeconfig").absolute())
    else:
        chosen = environ.get("KUBECONFIG") or ""
        usual = Path.home() / ".kube" / "config"
        if not chosen and usual.is_file():
            given, chosen = usual, str(usual)
    if chosen:
        KubeconfigSource(chosen, context=None, clock=SystemClock()).check()
    return given and Path(chosen)


@contextmanager
def _data_directory(given: Path | None) -> Iterator[Path]:
    with ExitStack() as stack:
        if given is None:
            made = tempfile.TemporaryDirectory(prefix="pumice-run-")
            given = Path(stack.enter_context(made))
        directory = given.absolute()
        stack.enter_context(state.locked(directory))
        yield directory


def _state(
    nats: str,
    services: Iterable[Hosted],
    *,
    phase: Literal["starting", "ready"],
    kubeconfig: Path | None = None,
) -> state.State:
    """Return what `status`, `events` and `trace` read in the data directory."""
    return state.State(
        phase=phase,
        pid=os.getpid(),
        nats=nats,
        kubeconfig=str(kubeconfig or ""),
        programs=tuple(
            state.Program(
                name=service.name,
                pid=service.process.pid,
                address=service.address,
                log=str(service.process.spec.log or ""),
            )
            for service in services
        ),
    )


def _print(line: str) -> None:
    print(f"pumice run: {line}", flush=True)
