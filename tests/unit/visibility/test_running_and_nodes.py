"""Running jobs and how full nodes are, as the live page shows them."""

import pytest

from pumice.testing import Cluster
from services.scheduler.engine.jobs.records import Job
from services.visibility.forecast.durations import HistoricJob, History
from services.visibility.forecast.ends import KEPT_S, Ends, stated_end
from services.visibility.queries.live import node_uses, running_jobs
from shared.api.kinds import NODE
from shared.api.time import format_seconds, parse
from shared.api.visibility import NodeUse, RunningJob

CONF = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}]
"""


def cluster() -> Cluster:
    return Cluster(CONF).node("n1", cpu="4", memory="8Gi").node("n2", cpu="4", memory="8Gi")


def running(world: Cluster) -> tuple[RunningJob, ...]:
    return running_jobs(world.cluster_state)


def nodes(world: Cluster) -> dict[str, NodeUse]:
    return {node.metadata.name: node for node in node_uses(world.cluster_state)}


def test_a_gang_on_nodes_says_what_it_holds_there() -> None:
    world = cluster().gang("train", tasks=2, cpu="3", memory="1Gi")
    assert running(world) == ()

    world.step()

    [job] = running(world)
    assert (job.metadata.namespace, job.metadata.name, job.queue) == ("ns", "train", "default")
    assert (job.pods, job.min_available, job.nodes) == (2, 2, 2)
    assert job.allocated == {"cpu": "6", "memory": "2Gi"}


def test_a_gang_says_since_when_it_runs_and_when_it_will_have_ended() -> None:
    annotations = {
        "scheduling.k8s.io/group-name": "train",
        "pumice.dev/expected-duration": "1h",
    }
    world = cluster().group("train", phase="Running")
    for name, started in (("a", "2026-01-01T10:00:00Z"), ("b", "2026-01-01T10:00:30Z")):
        status = {"phase": "Running", "startTime": started}
        metadata = {"annotations": annotations}
        world.pod(name, "train", cpu="1", node="n1", status=status, metadata=metadata)

    [job] = running(world)

    assert (job.pods, job.nodes) == (2, 1)
    assert job.running_since == "2026-01-01T10:00:00Z"
    assert job.expected_end == "2026-01-01T11:00:00Z"


def on_a_node(world: Cluster, **meta: object) -> Job:
    world.group("train", phase="Running")
    status = {"phase": "Running", "startTime": "2026-01-01T10:00:00Z"}
    world.pod("a", "train", cpu="1", node="n1", status=status, **meta)
    return world.cluster_state.jobs.get("ns/train")


def test_a_gang_that_says_nothing_is_expected_to_run_as_long_as_others_of_its_name() -> None:
    began, history = parse("2026-01-01T10:00:00Z"), History()
    now = began + 600
    job = on_a_node(world := cluster())
    ends = Ends(history, lambda: now)
    assert ends.of(job) is None
    for _ in range(40):
        history.ended(HistoricJob("ns", "default", "ns/train"), 3600.0)

    assert ends.of(job) is None
    now += KEPT_S
    at = ends.of(job)

    assert at == pytest.approx(began + 3600, rel=0, abs=400)
    [told] = running_jobs(world.cluster_state, ends.of)
    assert told.expected_end == format_seconds(at)
    now = at + 1
    assert ends.of(job) > now


def test_a_gang_that_states_its_duration_is_believed_whatever_others_took() -> None:
    history = History()
    history.ended(HistoricJob("ns", "default", "ns/train"), 60.0)
    annotations = {
        "scheduling.k8s.io/group-name": "train",
        "pumice.dev/expected-duration": "1h",
    }
    job = on_a_node(cluster(), metadata={"annotations": annotations})

    assert Ends(history, lambda: parse("2026-01-01T10:10:00Z")).of(job) == stated_end(job)
    assert stated_end(job) == parse("2026-01-01T11:00:00Z")


def test_a_gang_that_waits_does_not_run() -> None:
    world = cluster().gang("large", tasks=2, cpu="5")

    world.step()

    assert running(world) == ()


def test_a_node_says_what_of_it_is_used() -> None:
    world = cluster().gang("train", tasks=1, cpu="3", memory="1Gi")

    world.step()

    used, free = sorted(nodes(world).values(), key=lambda node: -node.pods)
    assert used.allocatable["cpu"] == "4"
    assert (used.allocated["cpu"], used.allocated["memory"], used.pods) == ("3", "1Gi", 1)
    assert (free.pods, "cpu" in free.allocated) == (0, False)
    assert used.ready
    assert not used.unschedulable


def test_a_node_that_is_cordoned_or_not_ready_says_so() -> None:
    away = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    world = cluster()
    world.put(NODE, body("n3", {"unschedulable": True})).put(NODE, body("n4", {"taints": away}))

    found = nodes(world)

    assert (found["n3"].unschedulable, found["n3"].ready) == (True, True)
    assert (found["n4"].unschedulable, found["n4"].ready) == (False, False)
    assert list(found) == ["n1", "n2", "n3", "n4"]


def body(name, spec):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
    }
