"""docs/observing.md shows the metrics, events and messages that there are."""

import re

import pytest

from pumice.events import CATALOGUE
from tests.unit.scheduler.test_explaining import ROWS
from tools.write_tables import METRICS_PAGE, metrics, with_metrics

TEXT = METRICS_PAGE.read_text(encoding="utf-8")


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    assert with_metrics(TEXT) == TEXT, "run `make crds`"


def test_a_metric_has_one_meaning() -> None:
    found = set(metrics())
    assert len({metric.name for metric in found}) == len(found)


@pytest.mark.parametrize("topic", [each.topic for each in CATALOGUE])
def test_every_type_of_event_is_told(topic: str) -> None:
    assert f"`{topic}`" in TEXT


def test_every_reason_to_wait_on_the_page_is_one_that_jobs_give() -> None:
    """Each message is one that the tests of explanations get from the scheduler."""
    told = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", TEXT, re.MULTILINE)
    known = {(row.gate, row.message.strip()) for row in ROWS.values()}
    shown = {(gate, message.removesuffix(" …")) for gate, message in told if gate in _GATES}
    assert shown
    assert shown <= known


_GATES = {row.gate for row in ROWS.values()}
