"""Finds cases and runs one of them."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.conformance.api import run_api
from tests.conformance.controller import run_controller
from tests.conformance.probes import run_probes
from tests.conformance.report import Grade, Mismatch, Unsupported, Verdict
from tests.conformance.scheduling import run_scheduler
from tests.conformance.webhooks import run_webhook
from tests.conformance.world import whole

_KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "scheduler": run_scheduler,
    "scheduler-probe": run_probes,
    "api": run_api,
    "controller": run_controller,
    "webhook": run_webhook,
}


def cases_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Return the case files below the paths, in order of their names."""
    for path in paths:
        if path.is_file():
            yield path
            continue
        yield from sorted(f for f in path.rglob("*.json") if f.name != "index.json")


def run_case(path: Path) -> Verdict:
    """Return the verdict on one case; a crash of the engine is a failure with its text."""
    case = json.loads(path.read_text())
    name = case.get("id", path.stem)
    run = _KINDS.get(case.get("kind", ""))
    if run is None:
        return Verdict(name, Grade.UNSUPPORTED, f"kind {case.get('kind')}")
    try:
        run(whole(case))
    except Unsupported as missing:
        return Verdict(name, Grade.UNSUPPORTED, str(missing))
    except Mismatch as mismatch:
        return Verdict(name, Grade.FAIL, str(mismatch))
    except Exception as crash:  # noqa: BLE001 - one broken case must not hide the others
        return Verdict(name, Grade.FAIL, f"{type(crash).__name__}: {crash}")
    return Verdict(name, Grade.PASS)
