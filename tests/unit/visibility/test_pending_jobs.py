"""Jobs that wait: their place in line, the gate that stops them, and what is short."""

import pytest

from pumice.testing import Cluster
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.state.memory import memory_of
from services.visibility.api.resources import RESOURCES
from services.visibility.api.tables import table
from services.visibility.queries.explaining import explain, subject_of
from services.visibility.queries.pending import Decisions, PublishedWait, as_decided
from services.visibility.queries.survey import DecisionPolicy, Survey, survey
from shared.api.base import NAME_MAX
from shared.api.kinds import NODE, POD, PODGROUP
from shared.api.visibility import Explanation, ObjectRef, PendingJob, ResourceShortage
from shared.contracts.messages import Short, WaitExplained
from shared.contracts.streams import WAITING_TTL_S
from tests.support.world import stored_pod
from tests.unit.visibility.mirrors import World
from tests.unit.visibility.test_explaining_a_job import policy

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def cluster() -> Cluster:
    return Cluster(CONF).node("n1", cpu="4", memory="8Gi")


def seen(world: Cluster, now: float = 0.0) -> Survey:
    return survey(world.cluster_state, DecisionPolicy(config=world.config), now=now)


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


@pytest.mark.parametrize("name", ["web-5d4", "x" * 300])
def test_a_gang_of_another_controller_has_it_as_owner_unless_its_name_is_too_long(
    name: str,
) -> None:
    world = cluster()
    reference = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": True,
    }  # fmt: skip
    meta = {"name": "podgroup-u", "namespace": "ns", "uid": "g", "ownerReferences": [reference]}
    spec = {"minMember": 1, "queue": "default", "minResources": {"cpu": "9"}}
    world.put(PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    [job] = pending(world)

    assert job.metadata.name == job.pod_group == "podgroup-u"
    owner = (job.owner.api_version, job.owner.kind, job.owner.name, job.owner.uid)
    is_long = len(name) > NAME_MAX
    own = ("", "PodGroup", "podgroup-u", "")
    assert owner == (own if is_long else ("apps/v1", "ReplicaSet", "web-5d4", "u"))


def test_a_gang_is_known_by_the_job_that_made_it() -> None:
    [job] = pending(owned(cluster(), "train-uid-1", job="train"))

    assert job.metadata.name == "train"
    assert job.owner == ObjectRef(
        api_version="batch.volcano.sh/v1alpha1",
        kind="Job",
        namespace="ns",
        name="train",
        uid="uid-train",
    )
    assert job.pod_group == "train-uid-1"


def test_jobs_come_by_queue_and_place_in_line() -> None:
    world = cluster().queue("other")
    for name, queue, second in (("c", "default", 3), ("a", "other", 2), ("b", "default", 1)):
        created = f"2026-01-01T00:00:0{second}Z"
        world.group(name, phase="Pending", queue=queue, created=created, minResources={"cpu": "9"})

    found = [(job.queue, job.position, job.metadata.name) for job in pending(world)]

    assert found == [("default", 1, "b"), ("default", 2, "c"), ("other", 1, "a")]


def test_a_gang_that_runs_and_has_pods_without_a_node_is_pending() -> None:
    world = cluster().node("n2", cpu="2").group("elastic", min_member=1, phase="Running")
    world.pod("elastic-0", "elastic", cpu="3", node="n1").pod("elastic-1", "elastic", cpu="3")

    [found] = pending(world)

    assert (found.metadata.name, found.gate) == ("elastic", "predicate")
    assert found.expected_start is not None
    assert "beyond its minimum there is no forecast" in found.expected_start.unknown
    assert found.message.startswith("1 of 2 pods have a node; for the others: 0/2 nodes")


def test_a_gang_that_the_next_cycle_places_is_not_pending() -> None:
    assert pending(cluster().gang("small", tasks=2, cpu="1")) == ()


def test_a_gang_in_an_unknown_queue_is_pending_and_names_it() -> None:
    [job] = pending(cluster().gang("lost", tasks=1, queue="nowhere"))

    assert (job.queue, job.gate) == ("nowhere", "queue")


def test_a_gang_that_lost_its_nodes_waits_since_its_pods_were_made_anew() -> None:
    """The times of conditions change with each message, so that a wait would become shorter."""
    world = cluster().gang("again", tasks=1, cpu="9")
    [task] = world.cluster_state.jobs.get("ns/again").tasks.values()
    pod = stored_pod(task.key, uid=task.uid, group="again", cpu="9")
    pod["metadata"]["creationTimestamp"] = "2026-01-01T01:00:00Z"
    world.put(POD, pod)
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

    assert job.waiting_since == "2026-01-01T01:00:00Z"


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


GANG = "ns/job"
NOW = 1e9


def said(gang: str = GANG, gate: str = "predicate", uid: str = "", **more: object) -> WaitExplained:
    time = more.pop("time", NOW - 5)
    return WaitExplained(gang=gang, uid=uid, term=1, cycle=1, time=time, gate=gate, **more)


class Heard:
    """Decisions about one job that waits."""

    def __init__(self, most: int = 10) -> None:
        self.now = 0.0
        self.world = World().queue("default").node("n1", cpu="2").node("n2", cpu="2")
        self.world.gang("job", pods=1, cpu="3")
        self.job: Job = self.world.mirror.state.jobs.get(GANG)
        self.decisions = Decisions(lambda: self.now, most)

    def hear(self, gate: str = "predicate", **more: object) -> None:
        self.decisions.update(said(gate=gate, uid=more.pop("uid", self.job.uid), **more))

    @property
    def decided(self) -> PublishedWait | None:
        return self.decisions.of(self.job)

    def explain(self) -> Explanation:
        rules = policy()
        found = survey(self.world.mirror.state, rules, now=NOW)
        subject = subject_of(self.world.mirror, "ns", "job")
        why = found.explanations.get(GANG)
        return explain(
            self.world.mirror, rules, subject, why,
            now=NOW, decided=self.decided, found_at=found.at,
        )  # fmt: skip


def failed(found: Explanation) -> tuple[str, str]:
    return next(((g.name, g.message) for g in found.gates if g.state == "Failed"), ("", ""))


def test_the_last_word_counts() -> None:
    heard = Heard()
    heard.hear("enqueue")
    heard.hear("predicate")

    assert heard.decided.why.gate == "predicate"
    assert heard.decided.at == NOW - 5


def test_a_word_about_an_earlier_group_of_that_name_does_not_count() -> None:
    heard = Heard()
    heard.hear(uid="old")

    assert heard.decided is None


def test_a_gang_of_which_the_leader_says_that_it_waits_no_longer_is_forgotten() -> None:
    heard = Heard()
    heard.hear()
    heard.hear("")

    assert heard.decided is None
    assert len(heard.decisions) == 0


def test_a_gang_that_has_started_waits_for_nothing_whatever_was_said() -> None:
    heard = Heard()
    heard.hear()
    heard.world.pod("job-0", "job", cpu="3", node="n1", phase="Running")

    assert heard.decided is None


def test_a_word_that_is_not_said_again_is_one_of_a_leader_that_is_gone() -> None:
    heard = Heard()
    heard.hear()
    heard.now = WAITING_TTL_S
    assert heard.decided is not None
    heard.now += 1

    assert heard.decided is None


def test_only_so_many_gangs_are_remembered_and_the_latest_stay() -> None:
    heard = Heard(most=2)
    heard.hear()
    heard.decisions.update(said("ns/other"))
    heard.hear()
    heard.decisions.update(said("ns/third"))

    assert len(heard.decisions) == 2
    assert heard.decided is not None


def test_gate_texts_and_amounts_of_an_answer_are_the_leaders() -> None:
    heard = Heard()
    lack = (Short(resource="cpu", requested=3000, largest_free=1500),)
    heard.hear(
        message="0/7 nodes", details=" (1500m free)", nodes=7, reasons={"no": 7}, shortages=lack
    )

    found = heard.explain()

    assert failed(found) == ("predicate", "0/7 nodes (1500m free)")
    assert (found.nodes, [(r.reason, r.nodes) for r in found.reasons]) == (7, [("no", 7)])
    lacking = ResourceShortage(resource="cpu", requested="3", free="1500m", pods=1)
    assert found.shortages == (lacking,)
    assert found.decided_at == "2001-09-09T01:46:35Z"
    assert found.latest is None
    assert "a node with 3 cpu" in found.would_help


def test_amounts_that_the_leader_told_minutes_ago_are_those_of_now() -> None:
    """It tells them again with another message only, and jobs have ended since."""
    heard = Heard()
    old = (Short(resource="cpu", requested=3000, largest_free=0),)
    heard.hear(message="0/7 nodes", details=" (0 free)", shortages=old, time=NOW - 300)
    (waits,) = survey(heard.world.mirror.state, policy(), now=NOW).pending

    found, listed = heard.explain(), as_decided(waits, heard.decided, now=NOW)

    assert "the largest has 2" in failed(found)[1]
    assert [short.free for short in (*found.shortages, *listed.shortages)] == ["2", "2"]
    assert found.decided_at == listed.decided_at == "2001-09-09T01:41:40Z"


def test_an_answer_tells_of_another_gate_that_a_session_has_found_since() -> None:
    heard = Heard()
    heard.hear("enqueue", message="the queue is full")

    found = heard.explain()

    assert failed(found) == ("enqueue", "the queue is full")
    assert (found.latest.gate, found.latest.at) == ("predicate", "2001-09-09T01:46:40Z")
    assert "Insufficient cpu" in found.latest.message
    assert "a node with 3 cpu" in found.would_help


def test_an_answer_tells_that_nothing_stops_a_job_since() -> None:
    heard = Heard()
    heard.hear(message="0/1 nodes")
    heard.world.node("n3", cpu="4")

    found = heard.explain()

    assert failed(found) == ("predicate", "0/1 nodes")
    assert (found.latest.gate, found.latest.message) == ("", "")
    assert found.would_help == ()


def test_a_session_of_before_the_decision_says_nothing_against_it() -> None:
    heard = Heard()
    heard.hear("enqueue")
    later = heard.decided._replace(at=NOW + 1)
    subject = subject_of(heard.world.mirror, "ns", "job")
    why = survey(heard.world.mirror.state, policy(), now=NOW).explanations.get(GANG)

    found = explain(
        heard.world.mirror, policy(), subject, why, now=NOW, decided=later, found_at=NOW
    )

    assert found.latest is None


def test_a_job_in_line_has_the_leaders_words_and_the_latest_place() -> None:
    heard = Heard()
    heard.hear("queue", message="over quota", details=" (place 9 in queue default)", position=9)
    (waits,) = survey(heard.world.mirror.state, policy(), now=NOW).pending

    told = as_decided(waits, heard.decided, now=NOW)

    assert (told.gate, told.message) == ("queue", "over quota (place 1 in queue default)")
    assert told.position == waits.position == 1
    assert told.decided_at == "2001-09-09T01:46:35Z"
    assert waits.decided_at is None


def test_an_explanation_names_one_place_in_its_head_and_at_its_gate() -> None:
    heard = Heard()
    heard.hear("queue", message="over quota", details=" (place 9 in queue default)", position=9)
    subject = subject_of(heard.world.mirror, "ns", "job")
    why = survey(heard.world.mirror.state, policy(), now=NOW).explanations.get(GANG)

    found = explain(heard.world.mirror, policy(), subject, why, now=NOW, decided=heard.decided)

    assert found.position == 1
    assert failed(found) == ("queue", "over quota (place 1 in queue default)")


def test_no_two_jobs_have_the_same_place_where_most_are_unschedulable() -> None:
    world = cluster()
    for number in range(30):
        created = f"2026-01-01T00:00:{number:02}Z"
        world.gang(f"gang{number}", tasks=2, cpu="3", created=created)
        world.group(f"out{number}", phase="Pending", created=created, minResources={"cpu": "9"})
    for step in range(3):
        world.step(now=float(step))
        created = f"2025-01-01T00:00:0{step}Z"
        world.group(f"first{step}", phase="Pending", created=created, minResources={"cpu": "9"})

        places = [job.position for job in pending(world) if job.position]

        assert len(places) == len(set(places)) > 50


def test_the_table_of_kubectl_tells_no_amount_in_thousandths() -> None:
    world = cluster().pod("other", cpu="2500m", node="n1").gang("big", tasks=1, cpu="3500m")
    (resource,) = (each for each in RESOURCES if each.plural == "pendingjobs")

    (row,) = table(resource, pending(world), now=0.0)["rows"]

    assert "cpu 3.5 (1.5 free)" in row["cells"]
