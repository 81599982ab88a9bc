"""The grid of loads, measured one process each: `python -m benchmarks.engine [--quick]`."""

import argparse
from collections.abc import Iterator
from functools import partial

from benchmarks.engine.clusters import KINDS, Load
from benchmarks.engine.measure import Timing, alone, measure

NODES = (1_000, 5_000, 20_000)
PODS = (1_000, 10_000, 50_000)
TARGETS = {
    ("identical", 5_000, 10_000): 1.0,
    ("shapes", 5_000, 10_000): 3.0,
    ("company", 5_000, 10_000): 6.0,
}
"""Seconds that the design promises for one arrival."""
LARGEST = Load("identical", 20_000, 1_000, running=200_000)
LARGEST_IDLE_S = 0.020
LARGEST_HELD_MIB = 1_536.0


def loads(*, quick: bool) -> Iterator[Load]:
    """Yield the cells, the largest clusters last; `quick` leaves all but the targets' size out."""
    for kind in KINDS:
        for nodes in NODES:
            for pods in PODS:
                if not quick or (nodes, pods) == (5_000, 10_000):
                    yield Load(kind, nodes, pods)
    if not quick:
        yield Load("identical", 5_000, 1_000, running=50_000)
        yield LARGEST
        yield Load("identical", 10_000, 10_000, running=300_000)


def promised(load: Load, timing: Timing) -> str:
    """Return how the figures stand to the promise, or nothing where none is made."""
    if load == LARGEST:
        kept = timing.idle <= LARGEST_IDLE_S and timing.held_mib <= LARGEST_HELD_MIB
        limit = f"idle {1e3 * LARGEST_IDLE_S:g} ms, {LARGEST_HELD_MIB:g} MiB"
    elif limit_s := TARGETS.get((load.kind, load.nodes, load.pods)):
        kept = timing.total <= limit_s
        limit = f"{limit_s:g} s"
    else:
        return ""
    return f"  {'kept' if kept else 'MISSED'}: {limit}"


def main(argv: list[str] | None = None) -> None:
    """Print a line per cell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the size that has targets")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only loads of this kind")
    given = parser.parse_args(argv)
    print(f"{'load':<10}{'nodes':>7}{'running':>9}{'pods':>8}{'bound':>8}{'evicted':>9}", end="")
    print(f"{'fold s':>8}{'decide s':>10}{'encode s':>10}{'us/pod':>8}{'idle ms':>9}", end="")
    print(f"{'1 % ms':>8}{'held':>7}{'peak MiB':>10}")
    for load in loads(quick=given.quick):
        if given.kind in (None, load.kind):
            print(line(load, alone(partial(measure, load))), flush=True)


def line(load: Load, t: Timing) -> str:
    """Return one row of the table."""
    return (
        f"{load.kind:<10}{load.nodes:>7}{load.running:>9}{load.pods:>8}{t.bound:>8}{t.evicted:>9}"
        f"{t.fold:>8.3f}{t.decide:>10.3f}{t.encode:>10.3f}{1e6 * t.total / load.pods:>8.1f}"
        f"{1e3 * t.idle:>9.2f}{1e3 * t.changed:>8.1f}{t.held_mib:>7.0f}{t.peak_mib:>10.0f}"
        f"{promised(load, t)}"
    )


if __name__ == "__main__":
    main()
