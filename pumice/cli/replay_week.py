"""Replay the jobs of the last week with another configuration, and compare waits and usage.

The jobs come from accounting's database, nodes and queues from a file that `kubectl get
nodes,queues.scheduling.volcano.sh -o json` prints. Nothing in the cluster is changed. The engine
decides in virtual time; evictions are not replayed. See docs/fair-share.md.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pumice.local.errors import WrongSettingError
from shared.model import durations

if TYPE_CHECKING:
    from shared.api.kinds import Kind

_DAY_S: Final = 86_400.0
_MOST: Final = 20_000
_BAR: Final = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument("--cluster", required=True, type=Path, metavar="FILE", help="JSON list")
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="configuration to compare with; the default's"
    )
    parser.add_argument("--fairshare", default="", metavar="half-life=14d", help="with --conf")
    add_record_arguments(parser, required=True)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")


def add_record_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the flags that say which records are replayed with which configuration."""
    parser.add_argument("--database", required=required, metavar="URL", help="of accounting")
    parser.add_argument(
        "--conf", required=required, type=Path, metavar="FILE", help="scheduler configuration"
    )
    parser.add_argument("--days", type=float, default=7.0, help="the last days of the records")
    parser.add_argument("--jobs", type=int, default=_MOST, help="most jobs to replay")


async def run(args: argparse.Namespace) -> int:
    """Replay twice and print the comparison. Raises WrongSettingError for unusable settings."""
    from pumice.replays.records import cluster_objects  # `pumice replay-week --help` needs none
    from services.scheduler.config import DEFAULT_TEXT

    try:
        objects = cluster_objects(args.cluster.read_bytes())
        baseline = args.baseline.read_text("utf-8") if args.baseline else DEFAULT_TEXT
    except (OSError, ValueError) as error:
        raise WrongSettingError(str(error)) from error
    return await compare_replays(args, objects, baseline=baseline)


async def compare_replays(
    args: argparse.Namespace, objects: Sequence["tuple[Kind, dict[str, Any]]"], *, baseline: str
) -> int:
    """Replay with `baseline` and with `--conf` and its half-life; print the comparison.

    `objects` are nodes and queues. Raises WrongSettingError for unusable settings.
    """
    from pumice.replays.comparison import compare, table
    from pumice.replays.engine import HALF_LIFE_S, Replay
    from pumice.replays.records import recorded_jobs
    from services.accounting.adapters.database import engine_of
    from services.accounting.adapters.store import AccountingDatabase
    from services.scheduler.config import BadConfig
    from shared.runtime.errors import Rejected
    from shared.runtime.values import Secret

    half_life_s = half_life(args.fairshare) or HALF_LIFE_S
    now = time.time()  # noqa: TID251 - the last days for a person
    try:
        engine = engine_of(args.database, Secret())
    except Rejected as error:
        raise WrongSettingError(str(error)) from error
    try:
        found = await recorded_jobs(
            AccountingDatabase(engine), since=now - args.days * _DAY_S, until=now, most=args.jobs
        )
    finally:
        await engine.dispose()
    try:
        changed = args.conf.read_text("utf-8")
        replays = [
            Replay(found.jobs, objects, baseline),
            Replay(found.jobs, objects, changed, half_life_s=half_life_s),
        ]
    except (OSError, ValueError, BadConfig) as error:
        raise WrongSettingError(str(error)) from error
    for name, replay in zip(("baseline", "changed"), replays, strict=True):
        progress = _Progress(name, len(found.jobs))
        replay.run(progress.submitted)
        progress.end()
    rows = compare(found, *(replay.waits for replay in replays))
    if found.cut_off:
        print(f"only the first {args.jobs} jobs were replayed", file=sys.stderr)
    if args.output == "json":
        print(msgspec.json.encode([row._asdict() for row in rows]).decode())
    else:
        print(table(rows))
    return 0


def half_life(text: str) -> float | None:
    """Return the seconds of `half-life=14d` or `half-life=12h`; None without a text."""
    if not text:
        return None
    name, _, value = text.partition("=")
    days = value.removesuffix("d")
    found = float(days) * _DAY_S if days != value and days.isdigit() else durations.setting(value)
    if name != "half-life" or not found:
        raise WrongSettingError(f"--fairshare {text!r}: write it like half-life=14d")
    return found


class _Progress:
    """A bar on stderr, if that is a terminal."""

    def __init__(self, name: str, jobs: int) -> None:
        self._name = name
        self._jobs = max(jobs, 1)
        self._done = 0

    def submitted(self, _: str) -> None:
        """Count a job."""
        self._done += 1
        if sys.stderr.isatty() and self._done % 20 == 0:
            filled = "█" * (_BAR * self._done // self._jobs)
            print(f"\r{self._name:<9}{filled:░<{_BAR}}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the bar."""
        if sys.stderr.isatty():
            print("\r" + " " * (_BAR + 9) + "\r", end="", file=sys.stderr, flush=True)
