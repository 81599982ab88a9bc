"""`python -m tests.attack`: break everything on the real stack while an independent judge watches.

Two replicas of each service run on a real API server, etcd, KWOK and nats-server; gangs come all
the time. Every fault strikes in each round; then all gangs must come to their end. The last line
says how it went, `--page` writes the table into docs/reliability.md.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from shared.runtime.quarantine import describe
from tests.attack.arena import Arena, arena, pause
from tests.attack.churn import churn
from tests.attack.faults import FAULTS, Fault
from tests.attack.installations import INSTALLATIONS, PLAIN, Installation
from tests.attack.judge import double_bindings
from tests.attack.load import PERIOD_S, Load
from tests.attack.report import Round, memory, page, table
from tests.support.api import gone_is_fine
from tests.support.wait import until

BEFORE_S = 2.0
AFTER_S = 2.0
END_S = 90.0


def main() -> int:
    """Run the attack; the exit code is 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="strikes per fault (default 2)")
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long in any case")
    parser.add_argument("--fault", action="append", default=[], help="only faults that begin so")
    parser.add_argument("--seed", type=int, default=0, help="decides every draw (default 0)")
    parser.add_argument(
        "--churn", type=float, default=0, help="minutes of many faults at once, on everything"
    )
    parser.add_argument("--page", type=Path, help="write the table into this page")
    parser.add_argument("--keep", type=Path, help="directory for data and logs that stay")
    options = parser.parse_args()
    chosen = {
        name: fault
        for name, fault in FAULTS.items()
        if not options.fault or any(name.startswith(prefix) for prefix in options.fault)
    }
    if options.churn and not options.fault:
        chosen = {}
    if not chosen and not options.churn:
        parser.error(f"no such fault; there are {', '.join(FAULTS)}")
    with tempfile.TemporaryDirectory(prefix="attack-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        rounds, broken = asyncio.run(attack(chosen, options, directory))
    print(f"{table(rounds)}\n{memory(rounds)}")
    for text in broken:
        print(f"BROKEN: {text}")
    if options.page:
        page(options.page, rounds, broken)
    wrong = [r for r in rounds if not r.ok]
    print(f"{len(rounds) - len(wrong)} of {len(rounds)} rounds held, {len(broken)} promises broken")
    return 1 if wrong or broken else 0


async def attack(
    faults: dict[str, Fault], options: argparse.Namespace, directory: Path
) -> tuple[list[Round], list[str]]:
    """Strike on one installation after the other; returns rounds and broken promises."""
    done: list[Round] = []
    broken: list[str] = []
    for name, installation in INSTALLATIONS.items():
        struck = {key: fault for key, fault in faults.items() if fault.installation == name}
        if struck:
            async with arena(directory / name, installation) as here:
                await strike_all(here, struck, options, done)
                broken += await all_broken(here)
    if options.churn:
        async with arena(directory / "churn", INSTALLATIONS["all"]) as here:
            done.append(await churn(here, options.churn, options.seed))
            print(done[-1], flush=True)
            broken += await all_broken(here)
    return done, broken


async def strike_all(
    here: Arena, faults: dict[str, Fault], options: argparse.Namespace, done: list[Round]
) -> None:
    """Strike each fault in each round, in drawn orders; `done` takes the rounds."""
    rng = random.Random(options.seed)
    end_s = time.monotonic() + options.minutes * 60
    for number in itertools.count():
        if number >= options.rounds and time.monotonic() >= end_s:
            return
        for name in rng.sample(sorted(faults), len(faults)):
            here.rng = random.Random(f"{options.seed}-{number}-{name}")
            prefix = f"r{number}-{len(done)}"
            for probe in here.probes:
                probe.begin()
            outcome = await one_round(here, name, faults[name], prefix, on=here.installation)
            failure = outcome.failure or "; ".join(here.complaints())
            done.append(outcome._replace(failure=failure))
            print(done[-1], flush=True)


async def all_broken(here: Arena) -> list[str]:
    """Return every promise that was broken until now, in the judge's and the audit log's view."""
    broken = [str(violation) for violation in here.judge.violations]
    return broken + double_bindings(await audited(here))


async def one_round(
    here: Arena,
    name: str,
    fault: Fault,
    prefix: str,
    *,
    period_s: float = PERIOD_S,
    on: Installation = INSTALLATIONS[PLAIN],
) -> Round:
    """Strike once under load, mend, and wait until every gang has come to its end."""
    known = len(here.judge.violations)
    load = Load(here.api, here.namespace, prefix, here.judge.expect, period_s, on=on)
    failure = ""
    async with asyncio.TaskGroup() as tasks:
        loading = tasks.create_task(load.run(), name="load")
        await pause(BEFORE_S)
        struck_s = time.monotonic()
        try:
            await fault.strike(here)
        except Exception as error:  # noqa: BLE001 - goes into the table; the other faults go on
            failure = f"the fault did not come about: {describe(error)}"
        failure = failure or "; ".join(here.ended())
        await here.revive()
        await pause(AFTER_S)
        load.stop()
        await loading
    waits_s = await waits(here, load, struck_s)
    stuck = sorted(key for key in load.posted if here.judge.phase(key) != "Completed")
    failure = failure or "; ".join(here.ended())
    try:
        await here.all_ready()
    except Exception as error:  # noqa: BLE001 - goes into the table
        failure = failure or f"not ready again: {error}"
    outcome = Round(
        fault=name,
        about=fault.about,
        gangs=len(load.posted),
        stuck=tuple(stuck),
        usual_s=waits_s[0],
        longest_s=waits_s[1],
        limit_s=fault.limit_s,
        failure=failure,
        violations=tuple(str(v) for v in here.judge.violations[known:]),
        memory_mib=here.memory_mib(),
    )
    await clear(here, load)
    return outcome


async def waits(here: Arena, load: Load, struck_s: float) -> tuple[float, float]:
    """Wait for the end of all gangs; returns the median wait before and the longest around it.

    A wait is from the moment at which the API server had taken the job, or the fault if that came
    later, until all its pods had nodes. A gang that never had them counts until now.
    """
    judge = here.judge

    def ended() -> bool:
        return all(key in judge.ended_s for key in load.posted)

    with contextlib.suppress(AssertionError):  # the round names the gangs that have no end
        await until(ended, deadline_s=END_S, describe="gangs end")
    now_s = time.monotonic()
    before, around = [0.0], [0.0]
    for key, posted_s in load.posted.items():
        bound_s = judge.bound_s.get(key, now_s)
        if bound_s < struck_s:
            before.append(bound_s - posted_s)
        else:
            around.append(bound_s - max(posted_s, struck_s))
    return sorted(before)[len(before) // 2], max(around)


async def clear(here: Arena, load: Load) -> None:
    """Delete the jobs of a round and wait until their pods are gone."""
    for key in load.posted:
        kind = "pods" if here.judge.is_single(key) else "jobs"
        name = key.partition("/")[2]
        await until(partial(_delete, here, kind, name), deadline_s=120, describe=f"{name} goes")

    def gone() -> bool:
        return not any(key.startswith(f"{here.namespace}/r") for key in here.judge.pods)

    await until(gone, deadline_s=60, describe="the pods of the round are gone")
    here.judge.forget(set(load.posted))


async def _delete(here: Arena, kind: str, name: str) -> bool:
    """Delete an object; a busy API server may need more than one request."""
    with gone_is_fine():
        await here.api.delete(kind, here.namespace, name)
    return True


async def audited(here: Arena) -> Path:
    """Return the audit log once it holds all that was asked until now: it is written in batches."""
    log = here.plane.logs / "audit.log"
    mark = "the-attack-is-over"
    await here.api.create("configmaps", {"metadata": {"name": mark}}, here.namespace)
    await until(lambda: mark in log.read_text("utf-8"), deadline_s=60, describe="the audit log")
    return log


if __name__ == "__main__":
    sys.exit(main())
