"""`pumice trace`: the tree from events and objects, its lines, and its JSON."""

import datetime as dt
import json

import msgspec
import pytest

from pumice.events import (
    CloudEvent,
    GangAdmitted,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    PodBound,
    PodEvicted,
)
from pumice.trace.objects import TracedPod, fold
from pumice.trace.text import as_json, as_text
from shared.api.batch import Job, JobPhase, JobSpec, JobState, JobStatus
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup, PodGroupCondition, PodGroupStatus
from shared.trace import Objects, PodTimes, cut_off, trace

T = 1_700_000_000.0
JOB = "ns/train"
GANG = "ns/train-u1"


def event(at, data):
    time = dt.datetime.fromtimestamp(T + at, tz=dt.UTC)
    return CloudEvent(id=str(at), source="", type="", subject=data.key, time=time, data=data)


def phase(at, name, *, uid="u1", **more):
    return event(at, JobPhaseChanged(job=JOB, uid=uid, phase=name, queue="q", **more))


def admitted(at, gang=GANG):
    return event(at, GangAdmitted(gang=gang, job=JOB, queue="q"))


def placed(at, pods=1, gang=GANG):
    return event(at, GangPlaced(gang=gang, job=JOB, queue="q", pods=pods, nodes=("n1",)))


def waits(at, gate, message, gang=GANG):
    return event(at, GangUnschedulable(gang=gang, job=JOB, queue="q", gate=gate, message=message))


def bound(at, name="train-0", uid="p0", gang=GANG):
    data = PodBound(pod=f"ns/{name}", uid=uid, node="n1", gang=gang, job=JOB)
    return event(at, data)


def evicted(at, name="train-0", uid="p0"):
    data = PodEvicted(
        pod=f"ns/{name}", uid=uid, gang=GANG, job=JOB, by="preempt", reason="to make room for ns/x"
    )
    return event(at, data)


def spans(root, name):
    return [span for span in root.spans if span.name == name]


def times(span):
    end = None if span.end is None else round(span.end - T, 3)
    return round(span.start - T, 3), end


WHOLE = [
    phase(0.05, "Pending"),
    admitted(0.25),
    placed(0.5),
    bound(0.52),
    phase(0.6, "Running", previous="Pending"),
    phase(10.6, "Completed", previous="Running"),
]
POD = PodTimes(key="ns/train-0", uid="p0", made_s=T, running_s=T, ended_s=T + 10, phase="Succeeded")


def test_a_whole_life_has_each_stage_with_its_time():
    root = trace(JOB, WHOLE, Objects(uid="u1", posted_s=T, group_made_s=T, pods=(POD,)))
    assert times(root) == (0.05, 10.6)
    assert root.detail == "Completed, queue q"
    assert [span.name for span in root.spans] == [
        "PodGroup made",
        "phase Pending",
        "waits for its queue",
        "placed",
        "phase Running",
        "phase Completed",
        "pod",
    ]
    assert times(spans(root, "waits for its queue")[0]) == (0.05, 0.25)
    (pod,) = spans(root, "pod")
    assert times(pod) == (0.25, 10.0)
    assert [(each.name, *times(each)) for each in pod.spans] == [
        ("waits for a node", 0.25, 0.5),
        ("is bound", 0.5, 0.52),
        ("starts", 0.52, 0.52),
        ("runs", 0.52, 10.0),
    ]


def test_events_do_not_depend_on_the_order_in_which_they_are_read():
    objects = Objects(uid="u1", posted_s=T, pods=(POD,))
    assert trace(JOB, WHOLE[::-1], objects) == trace(JOB, WHOLE, objects)


def test_events_alone_make_a_tree():
    root = trace(JOB, WHOLE)
    (pod,) = spans(root, "pod")
    assert pod.about == "ns/train-0"
    assert [each.name for each in pod.spans] == ["is bound", "starts"]
    assert times(pod) == (0.5, 10.6)


def test_nothing_known_makes_no_tree():
    other = event(1.0, JobPhaseChanged(job="ns/other", uid="u9", phase="Pending"))
    assert trace(JOB, [other]) is None


def test_a_job_that_no_event_tells_of_is_shown_from_its_objects():
    objects = Objects(uid="u1", posted_s=T, queue="q", phase="Pending", phase_s=T + 1)
    root = trace(JOB, [], objects)
    assert times(root) == (1.0, None)
    assert times(spans(root, "waits for its queue")[0]) == (1.0, None)
    assert [span.exact for span in spans(root, "phase Pending")] == [False]


def test_a_posted_time_of_another_second_than_the_first_event_stands():
    root = trace(JOB, [phase(65.0, "Pending")], Objects(uid="u1", posted_s=T))
    assert times(root) == (1.0, None)


def test_only_the_last_job_of_a_name_is_told_of():
    before = [
        phase(0.0, "Pending", uid="u0"),
        placed(0.1, gang="ns/train-u0"),
        bound(0.2, uid="old", gang="ns/train-u0"),
        phase(0.3, "Failed", uid="u0"),
    ]
    later = [phase(5.0, "Pending"), bound(6.0)]
    root = trace(JOB, before + later)
    assert times(root) == (5.0, None)
    assert not spans(root, "placed")
    assert len(spans(root, "pod")) == 1


def test_waits_before_and_after_admission_stand_where_they_belong():
    events = [
        phase(0.0, "Pending"),
        waits(1.0, "enqueue", "no room"),
        waits(3.0, "enqueue", "no quota"),
        admitted(4.0),
        waits(5.0, "predicate", "no node"),
        placed(7.0),
        waits(9.0, "gang", "too few"),
    ]
    root = trace(JOB, events)
    (entry,) = spans(root, "waits for its queue")
    assert [(*times(each), each.detail) for each in entry.spans] == [
        (1.0, 3.0, "enqueue: no room"),
        (3.0, 4.0, "enqueue: no quota"),
    ]
    assert [(*times(each), each.detail) for each in spans(root, "waits")] == [
        (5.0, 7.0, "predicate: no node"),
        (9.0, None, "gang: too few"),
    ]


def test_a_wait_that_no_event_told_of_yet_comes_from_the_condition():
    objects = Objects(uid="u1", posted_s=T, waits_since_s=T + 2, why="0/1 nodes are unavailable")
    root = trace(JOB, [phase(0.1, "Pending"), admitted(0.2)], objects)
    (wait,) = spans(root, "waits")
    assert (*times(wait), wait.detail, wait.exact) == (
        2.0,
        None,
        "0/1 nodes are unavailable",
        False,
    )
    told = trace(JOB, [admitted(0.2), waits(2.5, "predicate", "no node")], objects)
    assert [span.detail for span in spans(told, "waits")] == ["predicate: no node"]


def test_an_evicted_pod_ends_with_its_eviction_and_the_reason():
    events = [*WHOLE[:5], evicted(3.0), placed(4.0), bound(4.1, uid="p1")]
    root = trace(JOB, events, Objects(uid="u1", posted_s=T))
    first, second = spans(root, "pod")
    assert (*times(first), first.detail) == (0.5, 3.0, "evicted")
    assert (first.spans[-1].name, first.spans[-1].detail) == (
        "evicted by preempt",
        "to make room for ns/x",
    )
    assert times(second) == (4.0, None)


def test_a_placement_that_is_told_after_its_first_binding_is_the_one_of_that_binding():
    events = [phase(0.0, "Pending"), placed(1.0), bound(1.2), bound(5.0, uid="p1"), placed(5.1)]
    first, second = spans(trace(JOB, events), "pod")
    assert times(first.spans[0]) == (1.0, 1.2)
    assert times(second.spans[0]) == (5.0, 5.0)


def test_a_pod_of_a_job_that_has_ended_does_not_go_on():
    pod = PodTimes(key="ns/train-0", uid="p0", made_s=T + 1, phase="Pending")
    root = trace(
        JOB, [phase(0.1, "Pending"), phase(9.0, "Aborted")], Objects(uid="u1", pods=(pod,))
    )
    (span,) = spans(root, "pod")
    assert times(span) == (1.0, 9.0)
    assert times(span.spans[-1]) == (1.0, 9.0)


def test_the_lines_for_a_person_are_a_tree_with_columns():
    root = trace(JOB, WHOLE, Objects(uid="u1", posted_s=T, pods=(POD,)))
    lines = as_text(root, T + 20, pods_most=20).splitlines()
    assert lines[0].startswith("ns/train, posted at 20")
    assert lines[2] == "     at s    for s"
    assert lines[3] == "   ~0.000  ~10.550  job train: Completed, queue q"
    assert lines[5] == "   ~0.000   ~0.200  ├─ waits for its queue: admitted to queue q"
    assert "    0.450    0.020     ├─ is bound: n1" in lines
    assert "   ~0.470   ~9.480     └─ runs: Succeeded" in lines
    assert lines[-1].startswith("~: ")


def test_what_goes_on_lasts_until_now():
    root = trace(JOB, [phase(0.0, "Pending")])
    assert "  ~0.000 ~30.000…  job train: Pending, queue q" in as_text(root, T + 30, pods_most=1)


@pytest.mark.parametrize(("most", "shown", "more"), [(2, 2, True), (3, 3, False), (0, 3, False)])
def test_of_many_pods_as_many_are_shown_as_were_asked_for(most, shown, more):
    events = [phase(0.0, "Pending"), *(bound(1.0, f"train-{n}", f"p{n}") for n in range(3))]
    text = as_text(trace(JOB, events), T + 2, pods_most=most)
    assert text.count("pod train-") == shown
    assert ("and 1 more (--pods 0 shows all pods)" in text) is more


def test_json_has_the_whole_tree():
    root = json.loads(as_json(trace(JOB, WHOLE, Objects(uid="u1", posted_s=T, pods=(POD,)))))
    assert root["about"] == JOB
    assert root["durationSeconds"] == pytest.approx(10.55)
    assert root["start"] == "2023-11-14T22:13:20.050000Z"
    pod = root["spans"][-1]
    assert [each["name"] for each in pod["spans"]][-1] == "runs"
    assert pod["spans"][1] == {
        "name": "is bound",
        "detail": "n1",
        "start": "2023-11-14T22:13:20.500000Z",
        "end": "2023-11-14T22:13:20.520000Z",
        "durationSeconds": 0.02,
        "exact": True,
    }


def test_objects_tell_the_times_of_a_job_its_group_and_its_own_pods():
    made = "2023-11-14T22:13:20Z"
    job = Job(
        metadata=ObjectMeta(name="train", namespace="ns", uid="u1", creation_timestamp=made),
        spec=JobSpec(queue="q"),
        status=JobStatus(state=JobState(phase=JobPhase.PENDING)),
    )
    wait = PodGroupCondition(type="Unschedulable", status="True", message="no room")
    group = PodGroup(
        metadata=ObjectMeta(creation_timestamp=made), status=PodGroupStatus(conditions=(wait,))
    )
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}
    state = {"terminated": {"startedAt": made, "finishedAt": "2023-11-14T22:13:30Z"}}
    pod = {
        "metadata": {
            "name": "train-0",
            "namespace": "ns",
            "uid": "p0",
            "creationTimestamp": made,
            "ownerReferences": [{**owner, "uid": "u1"}],
        },
        "status": {"phase": "Succeeded", "containerStatuses": [{"state": state}]},
    }
    namesakes = [{**owner, "uid": "u0"}]
    foreign = {**pod, "metadata": {**pod["metadata"], "ownerReferences": namesakes}}
    pods = [msgspec.convert(each, type=TracedPod) for each in (pod, foreign)]
    objects = fold(job, group, pods)
    assert (objects.uid, objects.posted_s, objects.phase) == ("u1", T, "Pending")
    assert (objects.group_made_s, objects.why) == (T, "no room")
    assert objects.pods == (POD,)


def test_a_job_that_was_deleted_goes_on_in_no_part():
    root = cut_off(trace(JOB, WHOLE[:-1], Objects()))
    assert (root.detail, times(root)) == ("deleted while Running, queue q", (0.05, 0.6))
    assert all(span.end is not None for span in root.spans)


def test_the_reason_of_a_phase_is_told_once():
    message = "TaskCompleted of pod train-0"
    events = [
        phase(0, "Completing", reason="TaskCompleted", message=message),
        phase(1, "Aborted", reason="CommandIssued"),
        phase(2, "Failed", reason="MaxRetryReached", message="3 is used up"),
    ]
    root = trace(JOB, events)
    told = [span.detail for span in root.spans if span.name.startswith("phase")]
    assert told == [message, "CommandIssued", "MaxRetryReached: 3 is used up"]
