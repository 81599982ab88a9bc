"""Run the services against an existing cluster, in the foreground, until a signal.

Each service is a process of its own; one that dies is started again. A nats-server is started
too unless --nats names one, whose user and password come from PUMICE_NATS_USER and
PUMICE_NATS_PASSWORD (or PUMICE_NATS_PASSWORD_FILE).

All flags of the services are taken too: bare when one service has it (--schedule-period=1s) or
when all have it in common (--log-level=debug), else with the service in front
(--scheduler.kube-api-qps=100). `pumice run --flags` lists them.
"""

import argparse
import asyncio
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pumice.cli import serving
from pumice.cli.places import events_lines
from pumice.local import parts, state
from pumice.local.declaring import Declaring
from pumice.local.errors import unwrapped
from pumice.local.names import SERVICES
from pumice.local.nats import NatsServer
from pumice.local.process import Process
from pumice.local.services import Service, Supervised, Supervisor, Wiring, all_ready
from shared.kube.sources import KubeconfigSource
from shared.runtime.clock import SystemClock
from shared.runtime.common import CommonSettings
from shared.runtime.settings import load
from shared.runtime.tasks import TaskGroup

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
    serving.add_arguments(parser)


async def run(args: argparse.Namespace) -> int:
    """Run until a signal. Raises LocalError when something cannot even start."""
    if args.flags:
        print(serving.flags_page())
        return 0
    flags = serving.flags_of(args)
    kubeconfig = _kubeconfig(args.kubeconfig)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with unwrapped(), _data_directory(args.data_dir) as data:
        async with TaskGroup() as tasks:
            running = tasks.create_task(_serve(args, kubeconfig, flags, data), name="services")
            await stop.wait()
            running.cancel()
    _say("stopped")
    return 0


async def _serve(
    args: argparse.Namespace,
    kubeconfig: Path | None,
    flags: Mapping[str, tuple[str, ...]],
    data: Path,
) -> None:
    async with AsyncExitStack() as stack:
        supervised: list[Supervised] = []
        nats, url = None, args.nats
        if not url:
            nats = NatsServer(
                binary=parts.nats_server_binary(), directory=data / "nats", cluster=args.cluster
            )
            url = nats.url
            stack.push_async_callback(nats.stop)
            await nats.start()
            _say(f"nats-server listens on {nats.url}")
            stack.callback(state.forget, data)
            for line in events_lines(_state(nats, (), phase="ready"), data):
                _say(line)
            supervised.append(
                Supervised(process=nats.process, start=nats.start, must_end=nats.must_end)
            )
        else:
            given = [f"--nats={url}", f"--cluster={args.cluster}"]
            declaring = Declaring(
                load(CommonSettings, service="run", argv=given, environ=os.environ)
            )
            stack.push_async_callback(declaring.stop)
            declaring.begin(report=_say)
        wiring = Wiring(
            kubeconfig=kubeconfig,
            nats_url=url,
            nats=nats,
            cluster=args.cluster,
            logs=args.log_dir,
            log_format="json" if args.log_dir else "console",
        )
        services = [Service(service, wiring, flags=flags[service]) for service in SERVICES]
        stack.push_async_callback(_stop_all, [service.process for service in services])
        for service in services:
            service.process.start()
            _say(f"{service.name} listens on {service.address} (pid {service.process.pid})")

        def leave_word(*, phase: Literal["starting", "ready"]) -> None:
            if nats is not None:
                state.write(data, _state(nats, services, phase=phase, kubeconfig=kubeconfig))

        async def start_again(service: Service) -> None:
            await service.start()
            leave_word(phase="ready")

        leave_word(phase="starting")
        await all_ready(services, report=_say, patient=True)
        leave_word(phase="ready")
        _say("everything is ready; Ctrl-C stops it")
        supervised += [
            Supervised(process=service.process, start=partial(start_again, service))
            for service in services
        ]
        await Supervisor(supervised, report=_say).run()


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
        stack.enter_context(state.held(directory))
        yield directory


def _state(
    nats: NatsServer,
    services: Iterable[Service],
    *,
    phase: Literal["starting", "ready"],
    kubeconfig: Path | None = None,
) -> state.State:
    """Return what `status`, `events` and `trace` read in the data directory."""
    return state.State(
        phase=phase,
        pid=os.getpid(),
        nats=nats.url,
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


def _say(line: str) -> None:
    print(f"pumice run: {line}", flush=True)
