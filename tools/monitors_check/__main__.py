"""`make monitors-check`: promtool tries the alerts, then faults on a real cluster raise them.

With names of alerts only their faults are done: `python -m tools.monitors_check PumiceNoLeader`.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from pumice.demo.story import DemoError
from pumice.local.errors import LocalError
from tests.support.goprograms import promtool
from tools.monitors_check import live
from tools.monitors_check.faults import FAULTS
from tools.monitors_check.histories import HISTORIES, INTERVAL, History
from tools.prometheus import PrometheusError
from tools.write_dashboards import expressions
from tools.write_monitoring import rules


def histories(groups: dict[str, Any]) -> dict[str, Any]:
    """Return the histories as promtool reads them, beside a file with these rules."""
    alerts = {rule["alert"]: rule for group in groups["groups"] for rule in group["rules"]}
    return {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": INTERVAL,
        "tests": [_test(history, alerts[history.alert]) for history in HISTORIES],
    }


def _test(history: History, alert: dict[str, Any]) -> dict[str, Any]:
    fired = [
        {
            "exp_labels": alert["labels"] | dict(pair.split("=") for pair in labels.split()),
            "exp_annotations": alert["annotations"] | {"summary": summary},
        }
        for summary, labels in history.fires.items()
    ]
    return {
        "name": f"{history.alert}: {history.about}",
        "interval": INTERVAL,
        "input_series": [
            {"series": series, "values": values} for series, values in history.series.items()
        ],
        "alert_rule_test": [
            {"eval_time": history.at, "alertname": history.alert, "exp_alerts": fired}
        ],
    }


def panels() -> dict[str, Any]:
    """Return the expressions of the dashboards as rules that record, which promtool checks."""
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(expressions())
    ]
    return {"groups": [{"name": "panels", "rules": rules}]}


def hold() -> bool:
    """Check and try the rules; return whether all of them hold."""
    program = promtool()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules()), "utf-8")
        (folder / "tests.yaml").write_text(yaml.safe_dump(histories(rules())), "utf-8")
        (folder / "panels.yaml").write_text(yaml.safe_dump(panels()), "utf-8")
        for command in (
            ("check", "rules", "rules.yaml", "panels.yaml"),
            ("test", "rules", "tests.yaml"),
        ):
            if subprocess.run([program, *command], cwd=folder, check=False).returncode:
                return False
    return True


def main() -> int:
    """Check; return the exit code."""
    alerts = sys.argv[1:]
    if unknown := set(alerts) - {fault.alert for fault in FAULTS}:
        print(f"error: no alerts: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if not alerts and not hold():
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
