"""`make monitors-check`: promtool tries the alerts, then faults on a real cluster raise them.

With names of alerts only their faults are done: `python -m tools.monitors_check PumiceNoLeader`.
"""

import asyncio
import sys

from pumice.demo.story import DemoError
from pumice.local.errors import LocalError
from tools.monitors_check import by_promtool, live
from tools.monitors_check.faults import FAULTS
from tools.prometheus import PrometheusError


def main() -> int:
    """Check; return the exit code."""
    alerts = sys.argv[1:]
    if unknown := set(alerts) - {fault.alert for fault in FAULTS}:
        print(f"error: no alerts: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if not alerts and not by_promtool.hold():
        return 1
    code = 0
    try:
        asyncio.run(live.run(alerts))
    except* (AssertionError, DemoError, LocalError, PrometheusError) as group:
        for trouble in _troubles(group):
            print(f"error: {trouble}", file=sys.stderr)
        code = 1
    except* KeyboardInterrupt:
        code = 130
    if not code:
        print("monitors-check: passed")
    return code


def _troubles(error: BaseException) -> list[str]:
    """Return what errors say that came together, and those that came together with them."""
    if isinstance(error, BaseExceptionGroup):
        return [trouble for each in error.exceptions for trouble in _troubles(each)]
    return [str(error)]


if __name__ == "__main__":
    sys.exit(main())
