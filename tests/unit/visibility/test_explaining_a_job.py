"""The whole answer for one job: gates, holders of what is short, changes that would help.

Each change that is named is then made in the facts, and nothing stops the job any more.
"""

from collections.abc import Callable
from typing import Any

import pytest

from services.scheduler.decide import configure
from services.visibility.forecast import shapes
from services.visibility.queries import remedies
from services.visibility.queries.explaining import explain, subject_of
from services.visibility.queries.holders import HOLDERS_MAX
from services.visibility.queries.rehearsal import Rehearsal
from services.visibility.queries.survey import DecisionPolicy, survey
from shared.api.kinds import Kind
from shared.api.visibility import Explanation, NodesReason, ObjectRef
from tests.unit.scheduler.devices import DRIVER, request, spec_of, using
from tests.unit.visibility.mirrors import World, running

TIERS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: SHARING}, {name: predicates}, {name: nodeorder}]
"""
PROPORTION, CAPACITY = "proportion", "capacity"
TREE = "capacity, enableHierarchy: true"


def policy(sharing: str = CAPACITY) -> DecisionPolicy:
    return DecisionPolicy(config=configure(TIERS.replace("SHARING", sharing)))


def answer(world: World, name: str, sharing: str = CAPACITY) -> Explanation:
    rules = policy(sharing)
    found = survey(world.mirror.state, rules, now=1e9)
    subject = subject_of(world.mirror, "ns", name)
    assert subject is not None
    why = found.explanations.get(subject.job.key) if subject.job else None
    return explain(world.mirror, rules, subject, why, now=1e9)


def states(found: Explanation) -> dict[str, str]:
    return {gate.name: gate.state for gate in found.gates}


def failed(found: Explanation) -> str:
    return next((gate.name for gate in found.gates if gate.state == "Failed"), "")


def full_queue() -> World:
    world = World().queue("default", capability={"cpu": "4"}).node("n1", cpu="16")
    running(world, "large", cpu="2", node="n1")
    running(world, "small", cpu="1", node="n1")
    return world.waiting("job", pods=2, cpu="4")


def test_gates_before_the_one_that_stops_it_are_passed_and_those_behind_not_reached() -> None:
    world = World().queue("default").node("n1", cpu="2").node("n2", cpu="2")

    found = answer(world.gang("job", pods=1, cpu="3"), "job")

    assert states(found) == {
        "enqueue": "Passed",
        "gang": "Passed",
        "queue": "Passed",
        "quota": "Passed",
        "binder": "Passed",
        "topology": "Passed",
        "predicate": "Failed",
    }
    assert (found.nodes, found.reasons) == (2, (NodesReason(reason="Insufficient cpu", nodes=2),))


def test_the_gate_of_the_gang_counts_its_pods() -> None:
    world = World().queue("default").node("n1", cpu="9")

    def counted(pods: int) -> str:
        found = answer(world.gang(f"of-{pods}", pods=pods, cpu="1"), f"of-{pods}")
        return next(gate.message for gate in found.gates if gate.name == "gang")

    assert counted(1) == "1 pod is there, 1 is needed"
    assert counted(3) == "3 pods are there, 3 are needed"


def test_the_gate_of_the_gang_says_that_pods_run_below_its_minimum() -> None:
    world = World().queue("default").node("n1", cpu="1").group("g", phase="Running", minMember=2)
    world.pod("g-0", "g", cpu="1", node="n1").pod("g-1", "g", cpu="1")

    found = answer(world, "g")

    messages = [gate.message for gate in found.gates if gate.name == "gang"]
    assert messages == ["2 pods are there, 2 are needed; 1 of them runs: below its minimum"]


def test_a_job_says_which_devices_have_to_be_prepared_before_its_bind() -> None:
    device = {"driver": DRIVER, "pool": "n1", "device": "d0"}
    result = {
        **device,
        "request": "r",
        "bindingConditions": ["linked", "ready"],
        "bindingFailureConditions": ["failed"],
    }
    claim: dict[str, Any] = {
        "metadata": {"name": "c", "namespace": "ns", "uid": "c"},
        "spec": spec_of(request()),
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "job-0", "uid": "uid-job-0"}],
            "devices": [{**device, "conditions": [{"type": "linked", "status": "True"}]}],
        },
    }
    world = World().queue("default").node("n1", cpu="2").gang("job", pods=1, cpu="1")
    world.put("resourceclaims", claim).pod("job-0", "job", cpu="1", **using("c"))

    found = answer(world, "job")

    assert failed(found) == "binder"
    (gate,) = [gate for gate in found.gates if gate.state == "Failed"]
    assert gate.message == (
        "before 1 of its pods are bound, "
        "devices of resource claim ns/c have to be prepared (d0: ready)"
    )
    assert found.next_event == "drivers prepare the devices"
    claim["status"]["devices"][0]["conditions"] = [
        {"type": name, "status": "True"} for name in ("linked", "ready")
    ]
    assert failed(answer(world.put("resourceclaims", claim), "job")) == ""


def test_a_job_outside_of_its_queue_has_reached_no_other_gate() -> None:
    found = states(answer(full_queue(), "job"))

    assert found.pop("enqueue") == "Failed"
    assert set(found.values()) == {"NotReached"}


def test_holders_of_what_is_short_come_with_the_largest_first() -> None:
    found = answer(full_queue(), "job")

    assert [(holder.job.name, holder.holds) for holder in found.holders] == [
        ("large", {"cpu": "2"}),
        ("small", {"cpu": "1"}),
    ]


def test_holders_that_are_too_many_to_name_are_counted() -> None:
    world = World().queue("default", capability={"cpu": "26"}).node("n1", cpu="64")
    for number in range(HOLDERS_MAX + 5):
        running(world, f"holder-{number:02}", cpu="1", node="n1")

    found = answer(world.waiting("job", pods=2, cpu="4"), "job")

    assert (len(found.holders), found.remaining_holders) == (HOLDERS_MAX, 5)


def test_only_jobs_below_the_level_that_is_full_hold_what_is_short() -> None:
    world = World().queue("root").queue("eng", parent="root", capability={"cpu": "3"})
    world.queue("a", parent="eng").queue("b", parent="eng").queue("ops", parent="root")
    world.node("n1", cpu="16")
    running(world, "near", cpu="2", node="n1", queue="b")
    running(world, "far", cpu="8", node="n1", queue="ops")

    found = answer(world.waiting("job", pods=1, cpu="2", queue="a"), "job", TREE)

    assert [holder.job.name for holder in found.holders] == ["near"]
    assert "1 cpu more in queue eng" in found.would_help
    assert not any("in queue a" in text for text in found.would_help)


def test_on_nodes_only_pods_where_this_one_could_go_count() -> None:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="16")
    document = world.objects["nodes", "n1"]
    document["metadata"]["labels"]["disk"] = "ssd"
    world.put("nodes", document)
    running(world, "here", cpu="3", node="n1")
    running(world, "there", cpu="8", node="n2")
    world.group("job", phase="Inqueue")
    world.pod("job-0", "job", cpu="2", nodeSelector={"disk": "ssd"})

    found = answer(world, "job")

    assert failed(found) == "predicate"
    assert [holder.job.name for holder in found.holders] == ["here"]
    assert "a node with 2 cpu, label disk=ssd" in found.would_help


def raise_capability(world: World) -> None:
    world.queue("default", capability={"cpu": "7"})


def end_of(*names: str) -> Callable[[World], None]:
    def end(world: World) -> None:
        for name in names:
            world.delete("pods", f"ns/{name}-0").delete("podgroups", f"ns/{name}")

    return end


def no_room() -> World:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="4")
    running(world, "one", cpu="4", node="n1")
    running(world, "two", cpu="3", node="n2")
    return world.gang("job", pods=2, cpu="2")


def one_node_more(world: World) -> None:
    world.node("n3", cpu="4")


def closed() -> World:
    world = World().queue("default").node("n1", cpu="4")
    document = world.objects["queues", "default"]
    document["status"]["state"] = "Closed"
    return world.put("queues", document).waiting("job", pods=1, cpu="1")


def too_few_pods() -> World:
    world = World().queue("default").node("n1", cpu="4")
    return world.group("job", phase="Inqueue", minMember=3).pod("job-0", "job", cpu="1")


def two_more_pods(world: World) -> None:
    world.pod("job-1", "job", cpu="1").pod("job-2", "job", cpu="1")


def lost() -> World:
    return World().queue("default").node("n1", cpu="4").gang("job", pods=1, cpu="1", queue="new")


BOTH = "the end of the 2 jobs that hold most of it"
CASES = {
    "room in the queue": (full_queue, "3 cpu more in queue default", raise_capability),
    "the end of two": (full_queue, BOTH, end_of("large", "small")),
    "a node": (no_room, "a node with 4 cpu", one_node_more),
    "the end of one": (no_room, "the end of the job that holds most of it", end_of("one")),
    "an open queue": (closed, "queue default opened", lambda world: world.queue("default")),
    "pods": (too_few_pods, "2 more pods", two_more_pods),
    "a queue": (lost, "a queue new", lambda world: world.queue("new")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_change_that_would_help_does(case: str) -> None:
    build, text, change = CASES[case]
    world = build()
    before = answer(world, "job")
    assert text in before.would_help

    change(world)

    assert states(answer(world, "job"))[failed(before)] != "Failed"


def test_a_change_that_would_not_suffice_is_not_told_of() -> None:
    world = no_room()
    world.queue("default", capability={"cpu": "7"})

    found = answer(world, "job")

    assert failed(found) == "quota"
    assert found.would_help == (
        "4 cpu more in queue default and a node with 4 cpu",
        "the end of the job that holds most of it",
    )


def test_a_pod_that_is_not_admitted_needs_a_node_for_all_of_it() -> None:
    """One that has what only the queues lack would take no pod of the job."""
    conf = "overcommit}, {name: capacity"
    world = World().queue("default").node("n1", cpu="4")
    running(world, "one", cpu="4", node="n1").waiting("job", pods=1, cpu="4")

    assert "a node with 4 cpu" in answer(world, "job", conf).would_help


def test_what_others_ahead_would_take_helps_nothing() -> None:
    world = full_queue()
    first = world.objects["podgroups", "ns/job"]
    first["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    world.put("podgroups", first).waiting("ahead", pods=1, cpu="4")

    assert "3 cpu more in queue default" not in answer(world, "job").would_help
    assert "3 cpu more in queue default" in answer(world, "ahead").would_help


def test_a_job_that_runs_passes_every_gate() -> None:
    world = World().queue("default").node("n1", cpu="4")

    found = answer(running(world, "job", cpu="1", node="n1"), "job")

    assert set(states(found).values()) == {"Passed"}
    assert (found.holders, found.would_help, found.phase) == ((), (), "Running")


@pytest.mark.parametrize(
    ("phase", "passed"), [("", set()), ("Pending", set()), ("Inqueue", {"enqueue", "gang"})]
)
def test_a_job_that_the_scheduler_has_not_handled_has_passed_only_what_its_group_shows(
    phase: str, passed: set[str]
) -> None:
    world = World().queue("default").node("n1", cpu="4")

    found = answer(world.group("job", phase=phase).pod("job-0", "job", cpu="1"), "job")

    assert {name for name, state in states(found).items() if state == "Passed"} == passed
    assert {*states(found).values()} <= {"Passed", "NotReached"}
    assert found.next_event == (
        "the scheduler has not handled it yet and does so in its next cycle; nothing is known that "
        "stops it"
    )
    assert answer(world, "job-0").next_event == found.next_event


def test_a_job_that_has_its_nodes_says_that_its_pods_start() -> None:
    world = World().queue("default").node("n1", cpu="4").group("job", phase="Inqueue")
    world.pod("job-0", "job", cpu="1", node="n1", phase="Pending")

    found = answer(world, "job")

    assert set(states(found).values()) == {"Passed"}
    assert found.next_event == "its pods have nodes and start there"


def test_a_job_is_found_by_its_own_name_and_by_that_of_a_pod() -> None:
    world = World().queue("default").node("n1", cpu="1").node("n2", cpu="1")
    world.group("train-uid", phase="Inqueue", owner="train").pod("train-0", "train-uid", cpu="2")

    assert answer(world, "train").about == ObjectRef(kind="Job", namespace="ns", name="train")
    of_pod = answer(world, "train-0")
    assert of_pod.about == ObjectRef(kind="Pod", namespace="ns", name="train-0")
    assert (of_pod.phase, failed(of_pod)) == ("Pending", "predicate")
    assert subject_of(world.mirror, "ns", "missing") is None


def two_full_nodes() -> World:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="4")
    running(world, "one", cpu="4", node="n1")
    return running(world, "two", cpu="3", node="n2")


def test_pods_that_terminate_are_the_next_event_where_their_end_helps() -> None:
    world = two_full_nodes()
    leaving = world.objects["pods", "ns/one-0"]
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put("pods", leaving)
    world.gang("large", pods=1, cpu="4").gang("wide", pods=1, cpu="5")

    found = answer(world, "large")
    assert found.next_event == "pods that terminate leave their nodes (1 in the cluster)"
    assert found.would_help == (), "it needs no help"
    assert answer(world, "wide").next_event == "nothing that ends helps: it never fits as it is"


def test_a_gang_with_reserved_room_is_told_when_that_is_expected_to_be_free() -> None:
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu="3")
    world.group("other", phase="Running")
    world.pod("other-0", "other", cpu="3", node="n1", activeDeadlineSeconds=600)
    world.gang("large", pods=1, cpu="4")
    reserving = "reservation, arguments: {reservation.order: backfill}"

    found = answer(world, "large", f"capacity}}, {{name: {reserving}")

    assert failed(found) == "predicate"
    [message] = [gate.message for gate in found.gates if gate.state == "Failed"]
    assert "room is reserved, expected to start at 2001-09-09T01:56:40Z" in message


def test_a_job_without_its_pods_says_where_its_owner_tells_why() -> None:
    world = World().queue("default").node("n1", cpu="4")
    world.group("train-uid", phase="Inqueue", owner="train", minMember=1)
    assert answer(world, "train").next_event == (
        "its owner creates its pods; if it does not: kubectl -n ns describe vcjob train"
    )
    world.group("bare", phase="Inqueue", minMember=1)
    assert answer(world, "bare").next_event.endswith("kubectl -n ns describe podgroup bare")


def test_a_job_that_never_fits_waits_for_no_end() -> None:
    world = two_full_nodes().gang("huge", pods=1, cpu="9").gang("large", pods=1, cpu="4")

    assert answer(world, "large").next_event == "a job that holds cpu ends"
    assert answer(world, "huge").next_event == "nothing that ends helps: it never fits as it is"


def test_a_job_that_never_fits_waits_for_no_end_at_the_gate_of_its_share_either() -> None:
    world = World().queue("default", capability={"cpu": "9"}).node("n1", cpu="4")
    world.node("n2", cpu="4").node("n3", cpu="4")
    running(world, "one", cpu="3", node="n1")
    world.gang("huge", pods=1, cpu="7").gang("large", pods=2, cpu="4")

    found = answer(world, "huge")

    assert failed(found) == failed(answer(world, "large")) == "quota"
    assert found.next_event == "nothing that ends helps: it never fits as it is"
    assert found.would_help == ("1 cpu more in queue default and a node with 7 cpu",)
    assert answer(world, "large").next_event == "a job that holds cpu ends"


@pytest.mark.parametrize("pods", [0, 1])
@pytest.mark.parametrize("capability", [{"cpu": "4"}, {}])
def test_a_minimum_that_anybody_may_write_makes_no_more_than_a_bounded_cluster(
    pods: int, capability: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an answer about one PodGroup takes the memory and the time of all others."""
    most, put, seen = 100, Rehearsal.put, list[int]()

    def counted(self: Rehearsal, kind: Kind, obj: Any) -> None:
        seen[-1] += 1
        put(self, kind, obj)

    def begun(self: Rehearsal) -> Rehearsal:
        seen.append(0)
        return enter(self)

    enter = Rehearsal.__enter__
    monkeypatch.setattr(Rehearsal, "put", counted)
    monkeypatch.setattr(Rehearsal, "__enter__", begun)
    monkeypatch.setattr(shapes, "PODS_MAX", most)
    monkeypatch.setattr(remedies, "_NODES_MAX", most)
    minimum = {"minMember": 50_000, "minResources": {"cpu": "200k"}}
    for phase in ("Pending", "Inqueue"):
        world = World().queue("default", capability=capability).node("n1", cpu="9")
        world.group("bomb", phase=phase, **minimum)
        for number in range(pods):
            world.pod(f"bomb-{number}", "bomb", cpu="4")
        answer(world, "bomb")
    assert seen
    assert max(seen) <= 3 * most


def test_an_explanation_leaves_the_plan_as_it_was() -> None:
    world = full_queue()
    before = survey(world.mirror.state, policy(), now=1e9)

    answer(world, "job")

    assert survey(world.mirror.state, policy(), now=1e9) == before
