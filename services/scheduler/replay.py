"""`python -m services.scheduler replay DUMP`: a recorded cycle once more, offline.

Exit codes: 0 the same plan came out, 1 another one (a line says where), 2 the dump cannot be used.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from services.scheduler.adapters.entry_points import load_plugins
from services.scheduler.dump import BadDump, Dump, read
from services.scheduler.engine.plan import Plan
from services.scheduler.foreign import PluginFailure
from services.scheduler.policy.arguments import BadArgument
from services.scheduler.policy.catalog import ACTIONS, PLUGINS, Plugins
from services.scheduler.showing import show
from services.scheduler.worker import Worker
from shared.runtime.errors import Rejected

_SAME: Final = 0
_DIFFERS: Final = 1
_UNUSABLE: Final = 2
_ANY_SIZE: Final = sys.maxsize


def main(argv: Sequence[str]) -> int:
    """Read the dump that the arguments name, decide again, print; return the exit code."""
    arguments = _arguments(argv)
    try:
        with Path(arguments.dump).open("rb") as file:
            dump = read(file)
        plan = replayed(dump, {**PLUGINS, **load_plugins(PLUGINS, note=_note)})
    except OSError as error:
        return _refuse(f"{arguments.dump}: {error.strerror or error}")
    except (BadDump, BadArgument, Rejected) as error:
        return _refuse(f"{arguments.dump}: {error}")
    unlike = differences(dump.plan, plan)
    if arguments.json:
        answer = {"same": not unlike, "differs": unlike, "plan": plan}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")
    else:
        sys.stdout.write(show(dump, plan, unlike))
    return _DIFFERS if unlike else _SAME


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m services.scheduler replay",
        description="Run a recorded scheduling cycle again and print its plan and explanation.",
    )
    parser.add_argument("dump", metavar="DUMP", help="file that a scheduler wrote on SIGUSR1")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    return parser.parse_args(argv)


def _note(failure: PluginFailure) -> None:
    sys.stderr.write(f"plugin {failure.plugin} failed in {failure.point}: {failure.error}\n")


def _refuse(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return _UNUSABLE


def replayed(dump: Dump, plugins: Plugins = PLUGINS) -> Plan:
    """Return the plan that comes out now. Raises `BadDump` and `BadArgument`."""
    header = dump.header
    asked = {option.name for tier in header.config.tiers for option in tier.plugins}
    missing = sorted(asked - plugins.keys()) + sorted(set(header.config.actions) - ACTIONS.keys())
    if missing:
        raise BadDump(f"the cycle was decided with what is not installed: {', '.join(missing)}")
    worker = Worker(
        scheduler_names=header.options.scheduler_names,
        seed=header.options.seed,
        gang_message=_ANY_SIZE,
        settle_s=0.0,
        plugins=plugins,
        sharding=header.options.sharding,
        queue_gates=header.options.queue_gates,
        node_labels=header.options.node_labels,
        single_pods=header.options.single_pods,
    )
    try:
        worker.lay_out(header.memory)
    except msgspec.ValidationError as error:
        raise BadDump(f"the dump is cut off or damaged in the first line: {error}") from error
    worker.fold(dump.facts)
    worker.restore(header.memory, header.waiting_groups)
    return worker.decide(header.config, now=header.now, cycle=header.cycle, token=0).whole


def differences(recorded: Plan, plan: Plan) -> list[str]:
    """Return the names of the plan's parts that are not as recorded."""
    return [
        name
        for name in Plan.__struct_fields__
        if _plain(getattr(recorded, name)) != _plain(getattr(plan, name))
    ]


def _plain(part: object) -> object:
    return msgspec.to_builtins(part)
