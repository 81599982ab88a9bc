"""Churn: many faults at once for minutes or hours, on everything that there is.

Three strikers draw faults without end while gangs and single pods come, run, end and are deleted.
No two of them strike the same program at once, since nobody could say what that fault was. At the
end everything is mended, and every gang must have come to its end.
"""

import asyncio
import math
import random
import time
from collections import Counter
from functools import partial

from tests.attack import peers
from tests.attack.arena import API, NATS, Arena, pause
from tests.attack.faults import (
    Strike,
    cut,
    freeze,
    hostile,
    kill_one,
    program_frozen,
    program_killed,
)
from tests.attack.installations import DOORS, SINGLES
from tests.attack.load import Load
from tests.attack.report import Round
from tests.support.fleet import SERVICES
from tests.support.wait import until

STRIKERS = 3
PERIOD_S = 0.5
TTL_S = 30
END_S = 180.0
LIMIT_S = 120.0
"""Faults overlap: an API server that is away just after NATS was costs the sum of both."""

FAULTS: dict[str, tuple[str, Strike]] = {
    **{f"kill-{s}": (s, partial(kill_one, s)) for s in (*SERVICES, SINGLES)},
    **{f"freeze-{s}": (s, partial(freeze, s, 4.0)) for s in (*SERVICES, SINGLES)},
    **{f"cut-nats-{s}": (s, partial(cut, s, "nats-silent")) for s in (*SERVICES, SINGLES)},
    **{f"cut-api-{s}": (s, partial(cut, s, "api")) for s in ("cache", "binder", "controller")},
    **{f"kill-{s}": (s, partial(peers.door_killed, s)) for s in DOORS},
    **{f"kill-nats-{s}": (NATS, partial(peers.nats_leader_killed, s)) for s in peers.LED},
    "freeze-nats": (NATS, lambda arena: peers.nats_leader_frozen("command", 4.0, arena)),
    "cut-off-nats": (NATS, lambda arena: peers.nats_leader_cut_off("state", 4.0, arena)),
    "kill-api-server": (API, partial(program_killed, "kube-apiserver")),
    "freeze-api-server": (API, partial(program_frozen, "kube-apiserver", 3.0)),
    "kill-etcd": (API, partial(program_killed, "etcd")),
    "hostile-objects": ("tenant", hostile),
}
"""Fault → what it strikes, and the strike."""


async def churn(here: Arena, minutes: float, seed: int) -> Round:
    """Strike for so long; returns what came of it as one round."""
    known = len(here.judge.violations)
    # A bind may be carried out long after it was decided: binders and NATS are away in turn.
    here.judge.noticed_s = math.inf
    load = Load(
        here.api,
        here.namespace,
        "churn",
        here.judge.expect,
        PERIOD_S,
        on=here.installation,
        ttl_s=TTL_S,
    )
    strikers = [_Striker(here, random.Random(f"{seed}-{n}")) for n in range(STRIKERS)]
    busy: set[str] = set()
    struck: Counter[str] = Counter()
    missed: list[str] = []
    end_s = time.monotonic() + minutes * 60
    async with asyncio.TaskGroup() as tasks:
        loading = tasks.create_task(load.run(), name="load")
        striking = [
            tasks.create_task(each.run(end_s, busy, struck, missed), name="striker")
            for each in strikers
        ]
        await asyncio.wait(striking)
        await here.revive()
        load.stop()
        await loading
    stuck = await _stuck(here, load)
    failure = "; ".join(here.ended())
    try:
        await here.all_ready(120)
    except Exception as error:  # noqa: BLE001 - goes into the table
        failure = failure or f"not ready again: {error}"
    waits = [
        here.judge.bound_s.get(key, time.monotonic()) - posted_s
        for key, posted_s in load.posted.items()
    ]
    print(f"churn: {sum(struck.values())} strikes {dict(struck)}, {len(missed)} did not come about")
    for text in missed:
        print(f"  {text}")
    return Round(
        fault="churn",
        about=f"{minutes:g} minutes of churn: {sum(struck.values())} faults, three at a time, "
        "on three nats-servers with shards, admission and visibility",
        gangs=len(load.posted),
        stuck=tuple(stuck),
        usual_s=sorted(waits)[len(waits) // 2],
        longest_s=max(waits),
        limit_s=LIMIT_S,
        failure=failure or "; ".join(here.over_limit()),
        violations=tuple(str(v) for v in here.judge.violations[known:]),
        memory_mib=here.memory_mib(),
    )


async def _stuck(here: Arena, load: Load) -> list[str]:
    """Wait for the end of all gangs; return those that had none."""

    def stuck() -> list[str]:
        return sorted(key for key in load.posted if here.judge.phase(key) != "Completed")

    try:
        await until(lambda: not stuck(), deadline_s=END_S, describe=lambda: str(stuck()[:5]))
    except AssertionError:
        return stuck()
    return []


class _Striker:
    """Draws a fault, strikes, rests, again and again."""

    def __init__(self, here: Arena, rng: random.Random) -> None:
        self._here = here
        self._rng = rng

    async def run(
        self, end_s: float, busy: set[str], struck: Counter[str], missed: list[str]
    ) -> None:
        """Strike until `end_s`; `busy` is what another striker has at hand."""
        while time.monotonic() < end_s:
            name = self._rng.choice(sorted(FAULTS))
            target, strike = FAULTS[name]
            if target not in busy:
                busy.add(target)
                try:
                    await strike(self._here)
                    struck[name] += 1
                except Exception as error:  # noqa: BLE001 - another fault stood in the way; told
                    missed.append(f"{name}: {type(error).__name__} {str(error)[:200]}")
                    await self._here.revive(target)
                finally:
                    busy.discard(target)
            await pause(self._rng.uniform(0.5, 4.0))
