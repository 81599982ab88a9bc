"""Compares Volcano and Pumice: `python -m benchmarks.volcano CHECKOUT [--cases gang pod]`.

Builds Volcano's scheduler, controllers and webhook manager from a checkout of its repository, and
plays its cases and ours on both systems in turn, in each round in the other order, with a control
plane of its own each time. Prints a table per case and writes a page with plots and all records to
a folder.
"""

import argparse
import asyncio
import datetime as dt
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.volcano.cases import Case, our_cases, volcano_cases
from benchmarks.volcano.page import VOLCANO, Circumstances, figures, markdown, page
from benchmarks.volcano.play import Result, play
from benchmarks.volcano.systems import System, one_process, pumice, volcano
from pumice.local.versions import versions

HERE = Path(__file__).parents[2]


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.volcano", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of Volcano's repository")
    parser.add_argument("--cases", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-webhooks", action="store_true", help="both without their webhooks")
    parser.add_argument("--one-process", action="store_true", help="also all services in one")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds of each case")
    parser.add_argument("--out", type=Path, default=Path("build/bench-volcano"))
    options = parser.parse_args()
    cases = [*volcano_cases(options.checkout), *our_cases(options.checkout)]
    if unknown := set(options.cases or ()) - {case.name for case in cases}:
        names = " ".join(case.name for case in cases)
        parser.error(f"--cases: there is no {min(unknown)!r}; there are {names}")
    wanted = [case for case in cases if not options.cases or case.name in options.cases]
    asyncio.run(compare(wanted, options))


async def compare(cases: Sequence[Case], options: argparse.Namespace) -> None:
    """Play all cases, and write the page anew after each."""
    webhooks = not options.no_webhooks
    systems: dict[str, System] = {
        VOLCANO: volcano(options.checkout, webhooks=webhooks),
        "Pumice": pumice(webhooks=webhooks),
    }
    if options.one_process:
        systems["one process"] = one_process
    where = _circumstances(options.checkout, webhooks=webhooks)
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[Result]] = {}
    for case in cases:
        for number in range(1, options.rounds + 1):
            turn = list(systems.items())
            for name, system in turn if number % 2 else reversed(turn):
                result = await play(case, name, system, number, deadline_s=options.deadline)
                results.setdefault(case.name, []).append(result)
                words = ", ".join(f"{key} {value:.2f}" for key, value in figures(result).items())
                print(f"{case.name}, round {number}, {name}: {words}", file=sys.stderr, flush=True)
        results[case.name].sort(key=lambda each: list(systems).index(each.system))
        print(*markdown(case, results[case.name]), "", sep="\n", flush=True)
        (options.out / "results.json").write_bytes(msgspec.json.encode(results))
        (options.out / "index.html").write_text(page(cases, results, where), encoding="utf-8")
    print(f"the page is {options.out / 'index.html'}")


def _circumstances(checkout: Path, *, webhooks: bool) -> Circumstances:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = os.cpu_count() or 0
    return Circumstances(
        machine=f"{cores} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}",
        versions={
            "Volcano": _commit(checkout),
            "Pumice": _commit(HERE),
            "Kubernetes": versions().parts["kubernetes"],
        },
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        command=shlex.join(["python", "-m", "benchmarks.volcano", *sys.argv[1:]]),
        webhooks=webhooks,
    )


def _commit(folder: Path) -> str:
    """Return the commit of a checkout, or "unknown" for a folder without history."""
    found = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
