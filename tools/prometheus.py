"""Asks a running Prometheus, for the checks that have one: over its HTTP API, one request each."""

import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final

import msgspec

_ANSWER_S: Final = 10.0
_LOOK_S: Final = 0.5


class PrometheusError(Exception):
    """It does not answer, or not as wanted; the text says what it said."""


class Prometheus:
    """One server by its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ready(self) -> bool:
        """Return whether it answers questions."""
        try:
            self._ask("status/buildinfo")
        except PrometheusError:
            return False
        return True

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression: `metric` and `value`. Raises PrometheusError."""
        found: list[dict[str, Any]] = self._ask("query", query=expression)["result"]
        return found

    def has(self, expression: str) -> bool:
        """Return whether an expression has any series now."""
        return bool(self.query(expression))

    def names(self) -> set[str]:
        """Return the name of every series that it has ever stored."""
        return set(self._ask("label/__name__/values"))

    def down(self) -> dict[str, str]:
        """Return the jobs of which a target is not up, with what was wrong at the last scrape."""
        targets = self._ask("targets", state="active")["activeTargets"]
        if not targets:
            return {"": "it has no targets yet"}
        return {
            target["labels"]["job"]: target["lastError"] or target["health"]
            for target in targets
            if target["health"] != "up"
        }

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule with its health, its last error and its alerts."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def unwell(self) -> dict[str, str]:
        """Return the rules that were not evaluated, or not without an error."""
        rules = self.rules()
        if not rules:
            return {"": "it has no rules yet"}
        return {
            rule["name"]: rule.get("lastError") or rule["health"]
            for rule in rules
            if rule["health"] != "ok"
        }

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of all alerts that fire, by their names."""
        alerts = {
            rule["name"]: [a["labels"] for a in rule.get("alerts", ()) if a["state"] == "firing"]
            for rule in self.rules()
        }
        return {name: labels for name, labels in alerts.items() if labels}

    def _ask(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON of any form
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(asked, timeout=_ANSWER_S) as answer:  # noqa: S310 - ours
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise PrometheusError(f"{parameters or path}: {error.read().decode()}") from error
        except OSError as error:
            raise PrometheusError(f"{asked}: {error}") from error
        return msgspec.json.decode(text)["data"]


def wait_for(what: str, missing: Callable[[], object], *, deadline_s: float) -> None:
    """Wait until nothing is missing any more. Raises PrometheusError with what is."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            left = missing()
        except PrometheusError as error:
            left = str(error)
        if not left:
            return
        if time.monotonic() > end:
            raise PrometheusError(f"not so after {deadline_s:g} s: {what}: {left}")
        time.sleep(_LOOK_S)
