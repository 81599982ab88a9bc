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
import importlib
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final, cast

import msgspec

from pumice.cli.routing import TAKEN, route
from pumice.local import parts
from pumice.local.errors import LocalError, unwrapped
from pumice.local.nats import NatsServer
from pumice.local.process import Process
from pumice.local.services import SERVICES, Keeper, Kept, Service, Wiring, all_ready
from shared.runtime.settings import Field, fields_of

_STOP_S: Final = 12.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own flags; the services' flags are routed."""
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config"
    )
    parser.add_argument(
        "--scheduler-conf",
        type=Path,
        metavar="FILE",
        help="scheduler configuration of Volcano's form; reread when it is replaced",
    )
    parser.add_argument("--nats", metavar="URL", help="NATS server to use; default: start one")
    parser.add_argument(
        "--cluster", default="local", metavar="NAME", help="part of each subject (default local)"
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="keep the data of our NATS server there"
    )
    parser.add_argument(
        "--log-dir", type=Path, metavar="DIR", help="one log per service; default: stderr"
    )
    parser.add_argument("--flags", action="store_true", help="list the services' flags and end")


async def run(args: argparse.Namespace) -> int:
    """Run until a signal. Raises LocalError when something cannot even start."""
    fields = {service: fields_of(settings_type(service)) for service in SERVICES}
    if args.flags:
        print(_flags_page(fields))
        return 0
    flags = route(args.rest, fields)
    if args.scheduler_conf is not None:
        conf = _existing(args.scheduler_conf, "--scheduler-conf").absolute()
        flags["scheduler"] = (*flags["scheduler"], f"--scheduler-conf={conf}")
    kubeconfig = _kubeconfig(args.kubeconfig)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with unwrapped(), _data_directory(args.data_dir) as data:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(_serve(args, kubeconfig, flags, data), name="services")
            await stop.wait()
            serving.cancel()
    _say("stopped")
    return 0


def settings_type(service: str) -> type[msgspec.Struct]:
    """Return the settings of a service: `<Name>Settings` in its module `settings`."""
    module = importlib.import_module(f"services.{service}.settings")
    return cast("type[msgspec.Struct]", getattr(module, f"{service.capitalize()}Settings"))


async def _serve(
    args: argparse.Namespace,
    kubeconfig: Path | None,
    flags: Mapping[str, tuple[str, ...]],
    data: Path,
) -> None:
    async with AsyncExitStack() as stack:
        kept: list[Kept] = []
        nats, url = None, args.nats
        if not url:
            nats = NatsServer(
                binary=parts.nats_server_binary(), directory=data / "nats", cluster=args.cluster
            )
            url = nats.url
            stack.push_async_callback(nats.stop)
            await nats.start()
            _say(f"nats-server listens on {nats.url}")
            kept.append(Kept(process=nats.process, start=nats.start))
        wiring = Wiring(
            kubeconfig=kubeconfig,
            nats_url=url,
            nats=nats,
            cluster=args.cluster,
            logs=args.log_dir.absolute() if args.log_dir else None,
            log_format="json" if args.log_dir else "console",
        )
        services = [Service(service, wiring, flags=flags[service]) for service in SERVICES]
        stack.push_async_callback(_stop_all, [service.process for service in services])
        for service in services:
            service.process.start()
            _say(f"{service.name} listens on {service.address} (pid {service.process.pid})")
        await all_ready(services, report=_say, patient=True)
        _say("everything is ready; Ctrl-C stops it")
        kept += [Kept(process=service.process, start=service.start) for service in services]
        await Keeper(kept, report=_say).run()


async def _stop_all(processes: list[Process]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for process in processes:
            tasks.create_task(process.stop(grace_s=_STOP_S), name=process.name)


def _kubeconfig(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the kubeconfig to use; None when each service shall find its cluster itself."""
    if given is not None:
        return _existing(given, "--kubeconfig").absolute()
    usual = Path.home() / ".kube" / "config"
    if environ.get("KUBECONFIG") or not usual.is_file():
        return None
    return usual


def _existing(path: Path, flag: str) -> Path:
    if not path.is_file():
        raise LocalError(f"{flag}: there is no file {path}")
    return path


@contextmanager
def _data_directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="pumice-run-") as made:
        yield Path(made)


def _flags_page(fields: Mapping[str, tuple[Field, ...]]) -> str:
    lines = ["common to all services:"]
    first = next(iter(fields.values()))
    lines += [_flag_line(field) for field in first if field.common and field.flag not in TAKEN]
    for service, known in fields.items():
        lines += ["", f"{service}:", *(_flag_line(field) for field in known if not field.common)]
    return "\n".join(lines)


def _flag_line(field: Field) -> str:
    return f"  --{field.flag:<28} {field.description}"


def _say(line: str) -> None:
    print(f"pumice run: {line}", flush=True)
