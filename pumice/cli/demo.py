"""`pumice demo` (`make demo`): a cluster for a minute, five gangs, and what becomes of them."""

import argparse
import sys

from pumice.demo import DEADLINE_S, DemoOptions
from pumice.demo.interrupt import Interrupts, interruptible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "--api",
        choices=("embedded", "real"),
        default="embedded",
        help="API server to run on: embedded (default) starts at once and needs no Go, real is "
        "kube-apiserver with etcd, its controllers and KWOK",
    )
    parser.add_argument(
        "--plain", action="store_true", help="plain lines, as when the output is no terminal"
    )
    parser.add_argument(
        "--deadline",
        type=_seconds,
        default=DEADLINE_S,
        metavar="SECONDS",
        help="give up when not all jobs have completed so long after the cluster is up "
        "(%(default)g)",
    )


async def run(args: argparse.Namespace) -> int:
    """Run the demo; return 0, 1 after a message, or 128 + the signal that ended it."""
    interrupts = Interrupts()
    options = DemoOptions(api=args.api, plain=args.plain, deadline_s=args.deadline)
    code = await interruptible(_exit_code(options, interrupts), interrupts)
    if interrupts.first is not None:
        interrupts.mute()
        print(f"stopped by {interrupts.first.name}, nothing is left behind", file=sys.stderr)
    return code


async def _exit_code(options: DemoOptions, interrupts: Interrupts) -> int:
    # most of a second of imports, during which a Ctrl-C must already take effect
    from pumice.demo.run import DemoRun
    from pumice.demo.story import DemoError
    from shared.runtime.clock import SystemClock

    demo_run = DemoRun(options, interrupts=interrupts, out=sys.stdout, clock=SystemClock())
    try:
        await demo_run.run()
    except DemoError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
