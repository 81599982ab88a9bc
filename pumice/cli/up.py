"""Start a local cluster: an API server with fake nodes, NATS, and the services.

It runs in the background until `pumice down`. Data, logs, credentials and flags are kept in
the data directory; a later `pumice up` goes on with them. Clusters in several data directories run
beside each other.

All flags of the services are taken too, as `pumice run` takes them (`pumice up --flags`).
"""

import argparse
import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from typing_extensions import override

from pumice.cli import saved_flags, serving
from pumice.cli.data_directory import add_data_directory, events_hint
from pumice.directory import default_directory
from pumice.local import build, embedded, layout, state
from pumice.local.control_plane import Api, ControlPlaneOptions
from pumice.local.errors import LocalError, WrongSettingError
from pumice.local.fleet import GPU, Fleet, NodeShape, racks, read
from pumice.local.kubeconfig import check_replaceable, copy_kubeconfig
from pumice.local.ports import claim
from pumice.local.process import tail
from pumice.local.stack import (
    HolderConfig,
    StackOptions,
    api_of,
    order_of,
    write_holder_config,
)
from pumice.local.state import State
from shared.model import quantity

_LOOK_S: Final = 0.1
_SHAPE: Final = {"nodes": "count", "cpu": "cpu", "memory": "memory", "gpus": "gpus"}
"""Flag → field of the shape of the nodes."""
_OF_RUN: Final = ("--kubeconfig", "--nats")
_ELSEWHERE: Final = "elsewhere"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--api",
        choices=("embedded", "real"),
        help="embedded (default): a small API server in one process, ready in seconds; real: "
        "kube-apiserver with etcd and KWOK, built once (about 7 min, 5 GB of disk meanwhile)",
    )
    _add_machines(parser)
    parser.add_argument(
        "--kubeconfig-out", type=Path, metavar="FILE", help="write a kubeconfig there as well"
    )
    parser.add_argument(
        "--only",
        choices=["control-plane"],
        help="start the API server's side and NATS, not the services",
    )
    parser.add_argument("--port", type=_count, help="of the API server (default: free, and kept)")
    parser.add_argument("--nats-port", type=_count, help="of NATS (default: free, and kept)")
    parser.add_argument(
        "--forget-flags",
        action="store_true",
        help="use the flags of this command alone, not those that the cluster was started with",
    )
    serving.add_arguments(parser)
    parser.set_defaults(cluster=None)  # None, to distinguish it from a given value
    for flag in _OF_RUN:
        parser.add_argument(flag, dest=_ELSEWHERE, action=_Refused, help=argparse.SUPPRESS)
    add_data_directory(parser)


def _add_machines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=_count, help="fake nodes to add (default 3)")
    parser.add_argument("--cpu", type=_quantity, help="CPUs of each fake node (default 8)")
    parser.add_argument("--memory", type=_quantity, help="memory of each (default 32Gi)")
    parser.add_argument("--gpus", type=_count, help=f"{GPU} of each (default 0)")
    parser.add_argument(
        "--rack",
        type=_count,
        metavar="N",
        help="HyperNodes of N nodes each, and one around them (default: none)",
    )
    parser.add_argument(
        "--nodes-file",
        type=Path,
        metavar="FILE",
        help="nodes of several kinds and their HyperNodes, instead of the flags above "
        "(examples/local/nodes.yaml)",
    )


class _Refused(argparse.Action):
    """Names the command to which a flag belongs."""

    @override
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        parser.error(
            f"{option_string}: `pumice up` makes a cluster of its own; `pumice run` takes this flag"
            " to use one that is there"
        )


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
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
    if args.flags:
        print(serving.flags_page())
        return 0
    directory: Path = args.data_dir
    former = order_of(directory) if api_of(directory) else None
    stored = former.flags if former and not args.forget_flags else {}
    if args.kubeconfig_out:
        check_replaceable(args.kubeconfig_out)
    now = saved_flags.from_arguments(args)
    merged_flags = saved_flags.merged(stored, now, directory)
    saved_flags.fill(args, merged_flags)
    flags, fleet = serving.flags_of(args), _fleet(args)
    with state.locked(directory):  # the holder takes it over below
        if args.kubeconfig_out:
            check_replaceable(args.kubeconfig_out)
        api = _api(args.api, directory)
        ports = _ports(args, former)
        if again := saved_flags.as_arguments(stored, without=now):
            _print(f"as it was started before: {again}")
        if not await _agreed(api):
            return 1
        binaries = await embedded.ensure(api, _print)
        options = _options(args, api=api, fleet=fleet, flags=flags, ports=ports)
        config = HolderConfig(stack=options, binaries=binaries, flags=merged_flags)
        write_holder_config(directory, config)
        state.forget(directory)
    holder = _start_holder(directory)
    try:
        ready = await _ready(directory, holder)
    except asyncio.CancelledError:
        holder.send_signal(signal.SIGTERM)
        await asyncio.to_thread(holder.wait)
        raise
    if args.kubeconfig_out:
        copy_kubeconfig(Path(ready.kubeconfig), args.kubeconfig_out)
    _explain(ready, args)
    return 0


def _api(given: Api | None, directory: Path) -> Api:
    """Return the API server to use: that of the data, if there is any."""
    stored = api_of(directory)
    if given and stored and given != stored:
        raise WrongSettingError(
            f"--api {given}: the cluster in {directory} is on the {stored} API server;"
            " remove it with `pumice down --purge`, or give another --data-dir"
        )
    return given or stored or "embedded"


def _ports(args: argparse.Namespace, former: HolderConfig | None) -> tuple[int, int]:
    """Return the ports of API server and NATS: given, else as before, so that kubeconfigs hold."""
    before = (former.stack.plane.port, former.stack.plane.nats_port) if former else (0, 0)
    return (
        _port(args.port, before[0], owner="the API server", flag="--port"),
        _port(args.nats_port, before[1], owner="nats-server", flag="--nats-port"),
    )


def _port(given: int | None, before: int, *, owner: str, flag: str) -> int:
    """Return the port that is given, else that of the last time, else a free one."""
    if given:
        return claim(given, owner=owner, flag=flag)
    try:
        return claim(before, owner=owner, flag=flag)
    except LocalError:
        fresh = claim(0, owner=owner, flag=flag)
        _print(f"port {before}, where {owner} was, is taken: it is at {fresh} now")
        return fresh


async def _agreed(api: Api) -> bool:
    """Print the cost of building missing programs; on a terminal, ask for confirmation."""
    cost = await asyncio.to_thread(build.cost) if api == "real" else ""
    if not cost:
        return True
    _print(cost)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    print("go on? [Y/n] ", end="", flush=True)
    line = await asyncio.to_thread(sys.stdin.readline)
    return bool(line) and line.strip().lower() in {"", "y", "yes"}


def _fleet(args: argparse.Namespace) -> Fleet:
    """Return the fake machines, which come from flags or from a file. Raises WrongSettingError."""
    given = {name: getattr(args, name) for name in _SHAPE if getattr(args, name, None) is not None}
    if args.nodes_file is None:
        shape = NodeShape(**{_SHAPE[name]: value for name, value in given.items()})
        return Fleet(nodes=(shape,), hyper_nodes=racks((shape,), args.rack) if args.rack else ())
    if given or args.rack:
        other = next(iter(given), "rack")
        raise WrongSettingError(f"--{other}: --nodes-file says it; give one of them")
    return read(serving.existing(args.nodes_file, "--nodes-file"))


def _options(
    args: argparse.Namespace,
    *,
    api: Api,
    fleet: Fleet,
    flags: serving.Flags,
    ports: tuple[int, int],
) -> StackOptions:
    port, nats_port = ports
    return StackOptions(
        plane=ControlPlaneOptions(
            directory=args.data_dir,
            port=port,
            nats_port=nats_port,
            api=api,
            cluster=args.cluster or "local",
            logs=args.log_dir,
        ),
        fleet=fleet,
        services=() if args.only else tuple(flags),
        flags=flags,
    )


def _start_holder(directory: Path) -> "subprocess.Popen[bytes]":
    log = directory / layout.HOLDER_LOG
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
    log = directory / layout.HOLDER_LOG
    shown = 0
    while True:
        lines = tail(log, lines=1000)
        for line in lines[shown:]:
            _print(line)
        shown = len(lines)
        now = state.read(directory)
        if now is not None and now.phase == "ready":
            return now
        if holder.poll() is not None:
            reason = now.message if now else "; ".join(tail(log, lines=1))
            raise LocalError(f"the local cluster did not start: {reason}")
        await asyncio.sleep(_LOOK_S)


def _print(line: str) -> None:
    print(line, flush=True)


def _explain(ready: State, args: argparse.Namespace) -> None:
    kubeconfig = (args.kubeconfig_out or Path(ready.kubeconfig)).absolute()
    directory: Path = args.data_dir
    _print("")
    for program in ready.programs:
        _print(f"  {program.name:<24} pid {program.pid:<8} {program.address}")
    _print("")
    _print(f"use it:   export KUBECONFIG={kubeconfig}   (then kubectl as usual)")
    if args.only:
        users = directory / "nats" / "users.json"
        _print(f"services: python -m services.cache --kubeconfig {kubeconfig} --nats {ready.nats}")
        _print(f"          with PUMICE_NATS_USER and PUMICE_NATS_PASSWORD as in {users}")
    own = "" if directory == default_directory() else f" --data-dir {directory}"
    for line in events_hint(ready, directory):
        _print(line)
    _print(f"logs:     {args.log_dir or directory / 'logs'}")
    _print(f"stop it:  pumice down{own}")
