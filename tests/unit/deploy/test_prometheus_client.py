"""The checks' client of Prometheus: a server that has nothing yet is not one where all is well."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from tools.prometheus import Prometheus, PrometheusError, wait_for

TARGETS, RULES = "targets", "rules"


@pytest.fixture
def told() -> dict[str, object]:
    """What the server says, by the last word of the path."""
    return {}


@pytest.fixture
def server(told: dict[str, object]) -> Iterator[Prometheus]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = told.get(self.path.partition("?")[0].rpartition("/")[2])
            self.send_response(200 if data is not None else 503)
            self.end_headers()
            self.wfile.write(msgspec.json.encode({"data": data}))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield Prometheus(f"http://127.0.0.1:{http.server_port}")
        http.shutdown()
        thread.join()


def target(job: str, health: str, error: str = "") -> dict[str, object]:
    return {"labels": {"job": job}, "health": health, "lastError": error}


def test_a_server_without_targets_or_rules_is_not_well(
    server: Prometheus, told: dict[str, object]
) -> None:
    told |= {TARGETS: {"activeTargets": []}, RULES: {"groups": []}}
    assert server.down()
    assert server.unwell()


def test_a_target_that_is_not_up_is_named_with_its_error(
    server: Prometheus, told: dict[str, object]
) -> None:
    told[TARGETS] = {
        "activeTargets": [target("a", "up"), target("b", "down", "refused"), target("c", "unknown")]
    }
    assert server.down() == {"b": "refused", "c": "unknown"}


def test_alerts_that_are_pending_do_not_fire(server: Prometheus, told: dict[str, object]) -> None:
    alerts = [
        {"state": "pending", "labels": {"job": "a"}},
        {"state": "firing", "labels": {"job": "b"}},
    ]
    rule = {"name": "Down", "health": "ok", "alerts": alerts}
    told[RULES] = {"groups": [{"rules": [rule, {"name": "Up", "health": "ok", "alerts": []}]}]}
    assert server.firing() == {"Down": [{"job": "b"}]}
    assert server.unwell() == {}


def test_a_wait_ends_with_the_words_of_a_server_that_does_not_answer(server: Prometheus) -> None:
    with pytest.raises(PrometheusError, match="no target is down"):
        wait_for("no target is down", server.down, deadline_s=0)
