"""Start a local cluster: an API server with fake nodes, NATS, and the services.

It goes on in the background until `pumice down`. Data, logs and credentials are kept in the data
directory; a later `pumice up` goes on with them.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from pumice.local import embedded, state
from pumice.local.admin import NodeShape
from pumice.local.control_plane import Options
from pumice.local.errors import LocalError
from pumice.local.ports import claim
from pumice.local.process import tail
from pumice.local.services import SERVICES
from pumice.local.stack import StackOptions
from pumice.local.state import Order, State
from shared.model import quantity

_LOOK_S: Final = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--nodes", type=_count, default=3, help="fake nodes to add (default 3)")
    parser.add_argument(
        "--cpu", type=_quantity, default="8", help="CPUs of each fake node (default 8)"
    )
    parser.add_argument(
        "--memory", type=_quantity, default="32Gi", help="memory of each (default 32Gi)"
    )
    parser.add_argument(
        "--kubeconfig-out", type=Path, metavar="FILE", help="write a kubeconfig there as well"
    )
    parser.add_argument(
        "--only",
        choices=["control-plane"],
        help="start the API server's side and NATS, not the services",
    )
    parser.add_argument("--port", type=int, default=0, help="of the API server (default: free)")
    parser.add_argument("--nats-port", type=int, default=0, help="of NATS (default: free)")
    parser.add_argument(
        "--api",
        choices=("real", "embedded"),
        default="real",
        help="real: kube-apiserver with etcd and KWOK (default); embedded: a small one in one "
        "process, which needs no Go and starts at once",
    )
    data_directory(parser)


def data_directory(parser: argparse.ArgumentParser) -> None:
    """Add `--data-dir`, which `up`, `status` and `down` share."""
    parser.add_argument(
        "--data-dir",
        type=lambda text: Path(text).absolute(),
        default=state.default_directory(),
        metavar="DIR",
        help="where the cluster is kept (default %(default)s)",
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _quantity(text: str) -> str:
    try:
        positive = quantity.milli(text) > 0
    except quantity.BadQuantity as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not positive:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return text


async def run(args: argparse.Namespace) -> int:
    """Start the cluster and wait until it is ready."""
    directory: Path = args.data_dir
    with state.held(directory):  # nobody else has it; the holder takes it over below
        claim(args.port, owner="kube-apiserver", flag="--port")
        claim(args.nats_port, owner="nats-server", flag="--nats-port")
        binaries = await embedded.ensure(args.api, _tell)
        state.write_order(directory, Order(stack=_options(args), binaries=binaries))
        state.forget(directory)
    holder = _start_holder(directory)
    try:
        ready = await _ready(directory, holder)
    except asyncio.CancelledError:
        holder.send_signal(signal.SIGTERM)
        await asyncio.to_thread(holder.wait)
        raise
    if args.kubeconfig_out:
        _copy_private(Path(ready.kubeconfig), args.kubeconfig_out)
    _explain(ready, args)
    return 0


def _options(args: argparse.Namespace) -> StackOptions:
    return StackOptions(
        plane=Options(
            directory=args.data_dir, port=args.port, nats_port=args.nats_port, api=args.api
        ),
        nodes=NodeShape(count=args.nodes, cpu=args.cpu, memory=args.memory),
        services=() if args.only else SERVICES,
    )


def _start_holder(directory: Path) -> "subprocess.Popen[bytes]":
    log = directory / state.HOLDER_LOG
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - our own module
            (sys.executable, "-P", "-m", "pumice.local.holder", str(directory)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def _ready(directory: Path, holder: "subprocess.Popen[bytes]") -> State:
    """Show what the holder reports until the cluster is ready. Raises LocalError if it fails."""
    log = directory / state.HOLDER_LOG
    shown = 0
    while True:
        lines = tail(log, lines=1000)
        for line in lines[shown:]:
            _tell(line)
        shown = len(lines)
        now = state.read(directory)
        if now is not None and now.phase == "ready":
            return now
        if holder.poll() is not None:
            reason = now.message if now else "; ".join(tail(log, lines=1))
            raise LocalError(f"the local cluster did not start: {reason}")
        await asyncio.sleep(_LOOK_S)


def _tell(line: str) -> None:
    print(line, flush=True)


def _copy_private(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(source.read_bytes())


def _explain(ready: State, args: argparse.Namespace) -> None:
    kubeconfig = args.kubeconfig_out or ready.kubeconfig
    directory: Path = args.data_dir
    _tell("")
    for program in ready.programs:
        _tell(f"  {program.name:<24} pid {program.pid:<8} {program.address}")
    _tell("")
    _tell(f"use it:   export KUBECONFIG={kubeconfig}   (then kubectl as usual)")
    if args.only:
        users = directory / "nats" / "users.json"
        _tell(f"services: python -m services.cache --kubeconfig {kubeconfig} --nats {ready.nats}")
        _tell(f"          with PUMICE_NATS_USER and PUMICE_NATS_PASSWORD as in {users}")
    own = "" if directory == state.default_directory() else f" --data-dir {directory}"
    _tell(f"logs:     {directory / 'logs'}")
    _tell(f"stop it:  pumice down{own}")
