"""`python -m tests.upgrade`: the services of another build are replaced by these, and come back.

The other build is made from a revision of the history, by default HEAD, with the dependencies of
its own lock. Two replicas of each of its services run on a real API server and nats-server, under a
load of gangs; others run, wait and are stopped all the time. Manifests and services are replaced in
the order of docs/upgrading.md, one service at a time, each replica when its successor is ready;
then all of it is undone. A checker that reads the API server alone watches. The last line is the
result.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pumice.local.errors import LocalError
from tests.attack.__main__ import audited, one_round
from tests.attack.faults import Fault
from tests.attack.judge import double_bindings
from tests.attack.report import Round
from tests.upgrade.installation import ORDER, Installation, installation
from tests.upgrade.release import Release, commit_of, made, this
from tests.upgrade.standing import Standing

LIMIT_S = 60.0
PERIOD_S = 0.5
"""A gang each: it is services that are watched here, and not how much they carry."""
Act = Callable[[Installation], Awaitable[None]]


class Step(NamedTuple):
    """One step of the way there or back."""

    name: str
    act: Act


def main() -> int:
    """Check; the exit code is 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument(
        "--from", dest="revision", default="HEAD", help="revision of the other build"
    )
    parser.add_argument("--api", choices=("real", "embedded"), default="real")
    parser.add_argument("--keep", type=Path, help="folder for the other build and logs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upgrade-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"making {commit_of(options.revision)[:7]} with its own dependencies", flush=True)
        other = made(options.revision, folder)
        directory = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
        begun_s = time.monotonic()
        rounds, broken = asyncio.run(checked(other, directory, options.api))
    took_s = time.monotonic() - begun_s
    print(table(rounds))
    for text in broken:
        print(f"BROKEN: {text}")
    wrong = [each for each in rounds if not each.ok]
    held = f"{len(rounds) - len(wrong)} of {len(rounds)} steps held"
    print(f"{held}, {len(broken)} promises broken, in {took_s:.0f} s")
    return 1 if wrong or broken else 0


def steps(other: Release) -> Iterator[Step]:
    """Yield the steps of the way there, then those of the way back."""
    here = this()
    yield Step(f"{other.name} alone", rest)
    yield Step("CRDs and roles", lambda at: at.stage.manifests(here))
    yield Step("NATS", lambda at: at.stage.restart_nats(here))
    for service in ORDER:
        yield Step(service, partial(_replace, service=service, release=here))
    yield Step("this build alone", rest)
    for service in reversed(ORDER):
        yield Step(f"{service}, back", partial(_replace, service=service, release=other))
    yield Step("NATS, back", lambda at: at.stage.restart_nats(other))
    yield Step("CRDs and roles, back", lambda at: at.stage.manifests(other))


async def rest(_: Installation) -> None:
    """Change nothing."""


async def _replace(here: Installation, *, service: str, release: Release) -> None:
    try:
        await here.replace(service, release)
    except LocalError as error:  # goes into the table
        raise AssertionError(str(error)) from error


async def checked(other: Release, directory: Path, api: str) -> tuple[list[Round], list[str]]:
    """Go there and back; returns the steps and the broken promises."""
    done: list[Round] = []
    broken: list[str] = []
    async with installation(directory, other, api) as here:
        standing = Standing(here)
        await standing.begin()
        for number, step in enumerate(steps(other)):
            outcome = await stepped(here, step, number)
            done.append(outcome)
            print(outcome, flush=True)
            broken += [f"{step.name}: {text}" for text in standing.moved()]
        try:
            await standing.end()
        except AssertionError as error:
            broken.append(str(error))
        broken += [str(violation) for violation in here.judge.violations]
        if here.stage.has_accounts:
            broken += double_bindings(await audited(here))
    return done, broken


async def stepped(here: Installation, step: Step, number: int) -> Round:
    """Take one step under load; messages that a service did not understand count against it."""
    known = len(here.not_understood())
    fault = Fault(step.name, step.act, LIMIT_S)
    outcome = await one_round(here, step.name, fault, f"r{number}", period_s=PERIOD_S)
    new = here.not_understood()[known:]
    texts = tuple(f"not understood: {line[:300]}" for line in new)
    return outcome._replace(violations=outcome.violations + texts)


def table(rounds: list[Round]) -> str:
    """Return the table, a row per step."""
    rows = [
        "| replaced | gangs around it | outcome | longest wait for nodes (usual) |",
        "|---|---|---|---|",
    ]
    for each in rounds:
        outcome = "nothing lost, nothing doubled" if each.ok else "broken"
        figures = f"{each.longest_s:.1f} s ({each.usual_s:.1f} s)"
        rows.append(f"| {each.fault} | {each.gangs} | {outcome} | {figures} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
