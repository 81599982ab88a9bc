"""Has promtool check and try the alerts of k8s/monitoring.

It evaluates the rules on the histories in `tests/support/alert_histories.py`: each alert fires in
one of them, and does not in a near one. The expressions of the dashboards are checked as well.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.support.alert_histories import HISTORIES, INTERVAL, History
from tests.support.goprograms import promtool
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
