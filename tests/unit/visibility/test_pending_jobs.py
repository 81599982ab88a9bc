"""Jobs that wait: their place in line, the gate that stops them, and what is short."""

from pumice.testing import Cluster
from services.scheduler.engine.state.memory import memory_of
from services.visibility.answers.survey import Policy, Survey, survey
from shared.api.kinds import NODE, PODGROUP
from shared.api.visibility import ObjectRef, PendingJob, ResourceShortage

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def cluster() -> Cluster:
    return Cluster(CONF).node("n1", cpu="4", memory="8Gi")


def seen(world: Cluster, now: float = 0.0) -> Survey:
    return survey(world.cluster_state, Policy(config=world.config), now=now)


def pending(world: Cluster) -> tuple[PendingJob, ...]:
    return seen(world).pending


def owned(world: Cluster, name: str, *, job: str) -> Cluster:
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": job,
        "uid": f"uid-{job}",
        "controller": True,
    }
    return world.put(
        PODGROUP,
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-ns/{name}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [owner],
            },
            "spec": {"minMember": 1, "queue": "default", "minResources": {"cpu": "9"}},
            "status": {"phase": "Pending"},
        },
    )


def test_a_gang_without_room_says_what_its_pods_lack_on_nodes() -> None:
    world = cluster().node("n2", cpu="2", memory="8Gi").gang("big", tasks=2, cpu="3")

    [job] = pending(world)

    assert (job.metadata.name, job.metadata.namespace, job.queue) == ("big", "ns", "default")
    assert (job.gate, job.position) == ("predicate", 1)
    assert job.shortages == (ResourceShortage(resource="cpu", requested="3", free="2"),)
    assert "needs 3 cpu, 2 free on one node" in job.message
    assert job.waiting_since == "2026-01-01T00:00:00Z"


def test_a_gang_that_its_queue_keeps_out_waits_at_enqueue() -> None:
    world = cluster().group("wide", phase="Pending", minResources={"cpu": "9"})

    [job] = pending(world)

    assert job.gate == "enqueue"
    assert [short.resource for short in job.shortages] == ["cpu"]
    assert job.shortages[0].requested == "9"


def test_a_gang_is_known_by_the_job_that_made_it() -> None:
    [job] = pending(owned(cluster(), "train-uid-1", job="train"))

    assert job.metadata.name == "train"
    assert job.owner == ObjectRef(kind="Job", namespace="ns", name="train")
    assert job.pod_group == "train-uid-1"


def test_jobs_come_by_queue_and_place_in_line() -> None:
    world = cluster().queue("other")
    for name, queue, second in (("c", "default", 3), ("a", "other", 2), ("b", "default", 1)):
        created = f"2026-01-01T00:00:0{second}Z"
        world.group(name, phase="Pending", queue=queue, created=created, minResources={"cpu": "9"})

    found = [(job.queue, job.position, job.metadata.name) for job in pending(world)]

    assert found == [("default", 1, "b"), ("default", 2, "c"), ("other", 1, "a")]


def test_a_gang_that_runs_with_pods_to_spare_is_not_pending() -> None:
    world = cluster().node("n2", cpu="2").group("elastic", min_member=1, phase="Running")
    world.pod("elastic-0", "elastic", cpu="3", node="n1").pod("elastic-1", "elastic", cpu="3")

    found = seen(world)

    assert found.pending == ()
    assert found.explanations["ns/elastic"].gate == "predicate"


def test_a_gang_that_the_next_cycle_places_is_not_pending() -> None:
    assert pending(cluster().gang("small", tasks=2, cpu="1")) == ()


def test_a_gang_in_an_unknown_queue_is_pending_and_names_it() -> None:
    [job] = pending(cluster().gang("lost", tasks=1, queue="nowhere"))

    assert (job.queue, job.gate) == ("nowhere", "queue")


def test_a_gang_that_lost_its_nodes_waits_since_then() -> None:
    world = cluster().gang("again", tasks=1, cpu="9")
    stamps = [
        ("Scheduled", "2026-01-01T00:01:00Z"),
        ("Unschedulable", "2026-01-01T02:00:00Z"),
    ]
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in stamps]
    world.put(
        PODGROUP,
        {
            "metadata": {
                "name": "again",
                "namespace": "ns",
                "uid": "uid-ns/again",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"minMember": 1, "queue": "default"},
            "status": {"phase": "Inqueue", "conditions": conditions},
        },
    )

    [job] = pending(world)

    assert job.waiting_since == "2026-01-01T02:00:00Z"


def test_a_survey_changes_neither_the_plan_nor_what_plugins_note() -> None:
    world = cluster().gang("big", tasks=2, cpu="3").gang("small", tasks=1, cpu="1")
    world.cluster_state.memory["tdm"] = 12.0
    before = world.decide(now=5.0)

    seen(world, now=5.0)
    world.cycle -= 1
    after = world.decide(now=5.0)

    assert before == after
    assert world.cluster_state.memory == {"tdm": 12.0}


def test_cards_that_are_chosen_in_a_survey_are_not_kept() -> None:
    conf = (
        'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, '
        "{name: deviceshare, arguments: {deviceshare.GPUSharingEnable: true}}]\n"
    )
    has = {"cpu": "4", "pods": "9", "volcano.sh/gpu-memory": "16", "volcano.sh/gpu-number": "1"}
    status = {"allocatable": has, "capacity": has}
    world = Cluster(conf).put(NODE, {"metadata": {"name": "n1", "uid": "n1"}, "status": status})
    world.gang("g", tasks=1, requests={"volcano.sh/gpu-memory": "8"})

    assert len(seen(world).plan.binds) == 1

    assert memory_of(world.cluster_state)["cards"] == []
