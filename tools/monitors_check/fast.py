"""The alerts of k8s/monitoring with shorter times, so that a fault of seconds makes them fire.

Prometheus scrapes each second instead of each quarter of a minute, and every window of a rule is
shorter by the same factor: it holds as many samples as in a cluster. For how long a condition has
to last is promtool's part (`tools.monitors_check.by_promtool`); here it is some seconds.
"""

import copy
import re
from typing import Any, Final

INTERVAL_S: Final = 1
FACTOR: Final = 15
"""Seconds between two scrapes in a cluster; a test compares it with the ServiceMonitor."""
FOR_S: Final = 5
_WINDOW: Final = re.compile(r"\[(\d+)m\]")


def faster(rules: dict[str, Any]) -> dict[str, Any]:
    """Return rules whose times are shorter."""
    changed = copy.deepcopy(rules)
    for group in changed["groups"]:
        for rule in group["rules"]:
            rule["expr"] = shorter(rule["expr"])
            if "for" in rule:
                rule["for"] = f"{FOR_S}s"
    return changed


def shorter(expression: str) -> str:
    """Return an expression whose windows, which are whole minutes, are shorter."""
    return _WINDOW.sub(lambda match: f"[{int(match[1]) * 60 // FACTOR}s]", expression)
