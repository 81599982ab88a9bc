"""Has promtool check and try the alerts of k8s/monitoring (`make monitors-check`; needs Go).

It evaluates the rules on the histories in `tests/support/alert_histories.py`: each alert fires in
one of them, and does not in a near one. The expressions of the dashboards are checked as well.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.alert_histories import HISTORIES, INTERVAL, History
from tests.support.goprograms import promtool
from tools.write_dashboards import expressions

ROOT: Final = Path(__file__).parents[1]
RULES: Final = ROOT / "k8s" / "monitoring" / "alerts.yaml"


def histories(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the histories as promtool reads them, beside a file with these rules."""
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
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


def main() -> int:
    """Check and try the rules; returns the exit code."""
    program = promtool()
    rules = yaml.safe_load(RULES.read_text("utf-8"))["spec"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules), "utf-8")
        (folder / "tests.yaml").write_text(yaml.safe_dump(histories(rules)), "utf-8")
        (folder / "panels.yaml").write_text(yaml.safe_dump(panels()), "utf-8")
        for command in (
            ("check", "rules", "rules.yaml", "panels.yaml"),
            ("test", "rules", "tests.yaml"),
        ):
            if subprocess.run([program, *command], cwd=folder, check=False).returncode:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
