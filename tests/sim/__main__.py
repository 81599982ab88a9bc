"""`python -m tests.sim`: many seeds in parallel, or one of them with its story.

python -m tests.sim --seeds 200            seeds 0 … 199 on all cores
python -m tests.sim --seed 17              one seed; prints its story when it fails
python -m tests.sim --seed 17 --about ns/a one seed; prints the story of one key anyway
"""

import argparse
import gc
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from tests.sim.simulation import Report, play, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--about", default="", help="with --seed: whose story to print")
    parser.add_argument("--workload", default="", help="instead of the seed's own")
    parser.add_argument("--nemesis", action="append", help="instead of the seed's own; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    options = parser.parse_args()
    if options.seed is not None:
        return one(options)
    return many(options)


def one(options: argparse.Namespace) -> int:
    """Run one seed and print what there is to say."""
    report = simulate(
        options.seed,
        workload=options.workload,
        nemesis_names=options.nemesis,
        about=options.about,
    )
    if options.about or not report.ok:
        print(report.story)
    print(line(report))
    return not report.ok


def many(options: argparse.Namespace) -> int:
    """Run seeds in parallel; print each failure with its story, and a summary."""
    began = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    failed: list[Report] = []
    virtual_s = 0.0
    slowest = (0.0, 0)
    with ProcessPoolExecutor(options.jobs, initializer=gc.freeze) as pool:
        reports = pool.map(
            play, seeds, repeat(options.workload), repeat(options.nemesis), chunksize=1
        )
        for report in reports:
            virtual_s += report.virtual_s
            slowest = max(slowest, (report.settled_s, report.seed))
            if not report.ok:
                failed.append(report)
                print(f"{report.story}\n{line(report)}\n", flush=True)
    took = time.monotonic() - began
    print(
        f"{len(seeds)} seeds, {virtual_s / 3600:.1f} virtual hours in {took:.0f} s, "
        f"at most {slowest[0]:.0f} s from the calm to the end (seed {slowest[1]}): "
        + (f"FAILED {', '.join(str(report.seed) for report in failed)}" if failed else "all well")
    )
    return bool(failed)


def line(report: Report) -> str:
    """Return the last line about a seed: how it ended, and how to see it again."""
    what = f"seed {report.seed} ({report.workload}; {', '.join(report.nemeses)})"
    if report.ok:
        return f"{what}: well after {report.virtual_s:.1f} s, trace {report.digest[:16]}"
    first, *more = report.violations
    others = f" (and {len(more)} more)" if more else ""
    return (
        f"{what}: {first}{others}\n"
        f"  again: python -m tests.sim --seed {report.seed}    trace {report.digest[:16]}"
    )


if __name__ == "__main__":
    sys.exit(main())
