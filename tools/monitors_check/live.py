"""Runs a real Prometheus on a real local cluster, and has each fault raise its alert."""

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shared.runtime.tasks import TaskGroup
from tests.support.wait import until
from tools.monitors_check import load
from tools.monitors_check.faults import FAULTS, Fault
from tools.monitors_check.site import Site, site
from tools.write_dashboards import expressions
from tools.write_monitoring import rules

NEED_A_FAULT: Final = frozenset(fault.shows for fault in FAULTS if fault.shows)
"""Series of panels and alerts that are there once something has gone wrong."""
LOGS: Final = Path(__file__).parents[2] / "build" / "monitors-check"
"""Where the logs of a run are that failed."""
_SERIES: Final = re.compile(r"\b(?:pumice|volcano)_\w+\b")
_SEEN_S: Final = 30.0


def series() -> set[str]:
    """Return the names of all series that dashboards and alerts show."""
    alerts = [rule["expr"] for group in rules()["groups"] for rule in group["rules"]]
    return {name for text in (*expressions(), *alerts) for name in _SERIES.findall(text)}


async def run(alerts: Sequence[str]) -> None:
    """Do all of it, or have those alerts raised only.

    Raises AssertionError, DemoError, LocalError or PrometheusError.
    """
    with tempfile.TemporaryDirectory(prefix="pumice-monitors-") as name:
        async with site(Path(name), _say) as here:
            try:
                await _tried(here, alerts)
            except BaseException:
                shutil.copytree(here.stack.plane.logs, LOGS, dirs_exist_ok=True)
                _say(f"logs of all services: {LOGS}")
                raise


async def _tried(here: Site, alerts: Sequence[str]) -> None:
    if not alerts:
        await load.play_demo(str(here.stack.plane.kubeconfig))
        await load.preempt(here.api)
    async with TaskGroup() as tasks:
        loading = tasks.create_task(load.go_on(here.api), name="load")
        if not alerts:
            await _well(here)
        for fault in FAULTS:
            if not alerts or fault.alert in alerts:
                await _strike(here, fault)
        loading.cancel()


async def _well(here: Site) -> None:
    """Check what a cluster shows that is well and has work."""
    wanted = series() - NEED_A_FAULT
    await _shown(here, wanted)
    asked = [text for text in expressions() if wanted.issuperset(_SERIES.findall(text))]
    await _answered(here, asked)
    await here.quiet()  # not from the first second: with short times a busy machine is a fault
    _say(f"all is well: no alert, {len(wanted)} series, {len(asked)} expressions of dashboards")


async def _shown(here: Site, wanted: set[str]) -> None:
    """Wait until series of these names are there."""
    left = wanted

    async def complete() -> bool:
        nonlocal left
        left = wanted - await asyncio.to_thread(here.watcher.names)
        return not left

    await until(complete, deadline_s=_SEEN_S, describe=lambda: f"series {left}", every_s=0.5)


async def _answered(here: Site, asked: Sequence[str]) -> None:
    """Wait until each of these expressions of panels has an answer that is not empty."""
    left = list(asked)

    async def complete() -> bool:
        nonlocal left
        left = [text for text in left if not await here.ask(text)]
        return not left

    await until(complete, deadline_s=_SEEN_S, describe=lambda: f"panels {left}", every_s=0.5)


async def _strike(here: Site, fault: Fault) -> None:
    """Have one fault raise its alert and show its series, and the alert end after it."""
    begin = time.monotonic()
    async with fault.strike(here):
        struck = time.monotonic()
        for labels in fault.labels:
            await here.fires(fault.alert, labels, deadline_s=fault.limit_s)
        seen_s = time.monotonic() - struck
        if fault.shows:
            await _shown(here, {fault.shows})
            await _answered(here, [t for t in expressions() if fault.shows in _SERIES.findall(t)])
    await here.ready()
    if fault.ends:
        await here.quiet()
    told = f"{fault.alert} fired after {seen_s:.0f} s" if fault.alert else f"{fault.shows} is there"
    _say(f"{fault.about}: {told} ({time.monotonic() - begin:.0f} s in all)")


def _say(line: str) -> None:
    print(f"monitors-check: {line}", flush=True)
