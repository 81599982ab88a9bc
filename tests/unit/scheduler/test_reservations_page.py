"""docs/reservations.md: its configuration, queue and job are run, and its table is what happens."""

import re
from typing import Any

import yaml

from pumice.testing import Cluster, binds_of
from services.scheduler.decide import configure
from shared.api import kinds
from shared.api.time import format_seconds
from tests.support.manifests import ROOT

PAGE = (ROOT / "docs" / "reservations.md").read_text("utf-8")
CONF, QUEUE, JOB = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TABLE = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)
NOW = 1_800_000_000.0
_DURATION = "pumice.dev/expected-duration"


def annotated(name: str, **annotations: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-ns/{name}"}
    return {**meta, "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:01Z"}


def world(order: str) -> Cluster:
    """The cluster of the page: one node of two is taken, and a gang waits for both."""
    cluster = Cluster(CONF).node("n0", cpu="8").node("n1", cpu="8")
    queue = yaml.safe_load(QUEUE)
    queue["metadata"] |= {"uid": "q", "annotations": {"pumice.dev/order": order}}
    cluster.put(kinds.QUEUE, {**queue, "status": {"state": "Open"}})
    cluster.group("busy", phase="Running", queue="training")
    lasting = {"annotations": {_DURATION: "2h"}}
    started = {"startTime": format_seconds(NOW - 3600)}
    cluster.pod("busy-0", "busy", cpu="8", node="n0", metadata=lasting, status=started)
    return cluster.gang("large", tasks=2, cpu="8", queue="training")


def decided(order: str, **annotations: str) -> tuple[str, str]:
    """Return whether a job of the page's shape starts behind the gang, and why it waits."""
    cluster, job = world(order), yaml.safe_load(JOB)
    task, name = job["spec"]["tasks"][0], job["metadata"]["name"]
    (container,) = task["template"]["spec"]["containers"]
    spec = {"minMember": job["spec"]["minAvailable"], "queue": job["spec"]["queue"]}
    group = {"metadata": annotated(name, **annotations), "spec": spec}
    cluster.put(kinds.PODGROUP, {**group, "status": {"phase": "Inqueue"}})
    cluster.pod(f"{name}-0", name, requests=container["resources"]["requests"])
    plan = cluster.step(now=NOW)
    why = [e.message for e in plan.explanations if e.job == f"ns/{name}"]
    return "starts" if f"{name}-0" in binds_of(plan) else "waits", "".join(why)


def test_the_table_of_the_page_is_what_happens():
    stated = yaml.safe_load(JOB)["metadata"]["annotations"]
    jobs = [stated, {_DURATION: "2h"}, {}]
    assert [order for order, *_ in TABLE] == ["best-effort", "strict", "backfill"]
    found = {order: [decided(order, **job)[0] for job in jobs] for order, *_ in TABLE}
    told = {order: list(words) for order, *words in TABLE}
    assert found == told


def test_the_messages_of_the_page_are_those_that_jobs_get():
    waits = [decided(order, **{_DURATION: "2h"})[1] for order in ("backfill", "strict")]
    assert [why for why in waits if why not in PAGE] == []
    told = (ROOT / "docs" / "observing.md").read_text("utf-8")
    shown = dict(re.findall(r"^\| `(reservation|order)` \| ([^|…]+)[ …]*\|", told, re.MULTILINE))
    assert waits[0].startswith(shown["reservation"])
    assert waits[1].replace("training", "default") == shown["order"].strip()


def test_the_configuration_of_the_page_has_no_warning():
    assert configure(CONF).warnings == ()
