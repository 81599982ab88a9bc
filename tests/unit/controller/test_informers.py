"""The replica's rules: own writes count at once, facts that lag change nothing."""

import json
from typing import Any

import msgspec
import pytest

from services.controller.adapters.informers import Informers
from services.controller.adapters.store import Identity
from services.controller.job import effects
from services.controller.job.plan import advance
from services.controller.job.sync import gate_is_open
from shared.api import keys, kinds
from shared.api.batch import JobEvent
from shared.contracts.messages import Fact
from tests.support import world
from tests.support.structs import job
from tests.support.world import fact
from tests.unit.controller.world import UID, task

NAME = "train-a-0"


def only_pod(uid: str, rv: int, phase: str = "Running", **meta: Any) -> dict[str, Any]:
    told = {
        "resourceVersion": str(rv),
        "annotations": {keys.JOB_NAME: "train", keys.TASK_SPEC: "a", keys.TASK_INDEX: "0"},
        "ownerReferences": [world.job_owner("train", UID)],
    }
    return world.stored_pod(f"ns/{NAME}", uid=uid, phase=phase, metadata={**told, **meta})


def whole_job(*, rv: str, phase: str | None = None, **status: Any) -> Fact:
    plain = json.loads(msgspec.json.encode(job(task("a", 2))))
    plain["metadata"]["resourceVersion"] = rv
    plain["status"] = {"state": {"phase": phase}, **status} if phase else {}
    return fact("jobs", plain)


def gone(uid: str, rv: int = 99) -> Fact:
    return world.gone("pods", f"ns/{NAME}", uid, rv=str(rv))


@pytest.fixture
def replica() -> Informers:
    made = Informers(scheduler_names=["volcano"])
    made.written(kinds.JOB, msgspec.json.encode(job(task("a", 2))))
    made.jobs["ns/train"].acquire()
    return made


def asked(replica: Informers) -> list[tuple[str, str]]:
    waiting = replica.jobs["ns/train"].requests.values()
    return [(r.event.value, r.pod_uid) for r in waiting]


def held(replica: Informers) -> dict[str, tuple[str, str]]:
    return {n: (p.uid, p.phase) for n, p in replica.jobs["ns/train"].pods.items()}


def test_an_older_version_of_the_same_pod_changes_nothing(replica: Informers) -> None:
    replica.written(kinds.POD, json.dumps(only_pod("u1", 7, "Running")).encode())
    replica.fold([fact("pods", only_pod("u1", 5, "Pending"))])
    assert held(replica) == {NAME: ("u1", "Running")}


def test_the_echo_of_an_own_write_touches_nothing(replica: Informers) -> None:
    replica.written(kinds.POD, json.dumps(only_pod("u1", 7, "Running")).encode())
    assert not replica.fold([fact("pods", only_pod("u1", 7, "Running"))])
    assert replica.fold([fact("pods", only_pod("u1", 8, "Failed"))])


def test_a_pod_that_was_deleted_by_us_does_not_come_back_with_a_late_fact(
    replica: Informers,
) -> None:
    replica.fold([fact("pods", only_pod("u1", 5))])
    replica.deleted(kinds.POD, f"ns/{NAME}", "u1")
    replica.fold([fact("pods", only_pod("u1", 6))])
    assert held(replica) == {}
    replica.written(kinds.POD, json.dumps(only_pod("u2", 9, "Pending")).encode())
    replica.fold([fact("pods", only_pod("u1", 7)), gone("u1", 8)])
    assert held(replica) == {NAME: ("u2", "Pending")}
    assert (JobEvent.POD_EVICTED, "u1") not in asked(replica)


def test_an_answer_that_is_older_than_the_end_of_a_pod_does_not_bring_it_back(
    replica: Informers,
) -> None:
    replica.fold([fact("pods", only_pod("u1", 5))])
    with replica.request():
        replica.fold([gone("u1")])
        replica.written(kinds.POD, json.dumps(only_pod("u1", 6)).encode())
    assert held(replica) == {}


def test_an_answer_about_a_pod_that_was_replaced_meanwhile_changes_nothing(
    replica: Informers,
) -> None:
    replica.fold([fact("pods", only_pod("u1", 5))])
    with replica.request():
        replica.fold([fact("pods", only_pod("u2", 9, "Pending"))])
        replica.written(kinds.POD, json.dumps(only_pod("u1", 6)).encode())
    assert held(replica) == {NAME: ("u2", "Pending")}


def test_another_uid_under_a_name_is_a_deletion_and_an_addition(replica: Informers) -> None:
    replica.fold([fact("pods", only_pod("u1", 5))])
    replica.fold([fact("pods", only_pod("u2", 9, "Pending"))])
    assert held(replica) == {NAME: ("u2", "Pending")}
    assert asked(replica) == [
        ("PodRunning", "u1"),
        ("PodEvicted", "u1"),
        ("PodPending", "u2"),
    ]


def test_each_failure_and_eviction_is_asked_for_once(replica: Informers) -> None:
    replica.fold(
        [
            fact("pods", only_pod("u1", 5)),
            fact("pods", only_pod("u1", 6, "Failed")),
            fact("pods", only_pod("u1", 7, "Failed")),
        ]
    )
    replica.fold([gone("u1"), gone("u1")])
    assert asked(replica) == [("PodRunning", "u1"), ("PodFailed", "u1"), ("PodEvicted", "u1")]


def test_the_end_of_a_later_pod_of_that_name_is_the_end_of_the_one_that_is_held(
    replica: Informers,
) -> None:
    replica.fold([fact("pods", only_pod("u1", 5)), gone("u2", 9)])
    assert held(replica) == {}


def test_a_pod_that_the_controller_marked_is_not_evicted_when_it_goes(replica: Informers) -> None:
    marked = {
        "annotations": {**only_pod("", 0)["metadata"]["annotations"], keys.OUT_OF_SYNC: "true"}
    }
    replica.fold(
        [fact("pods", only_pod("u1", 5)), fact("pods", only_pod("u1", 6, **marked)), gone("u1")]
    )
    assert "PodEvicted" not in [event for event, _ in asked(replica)]


def test_what_a_state_that_starts_anew_does_not_name_again_is_gone(replica: Informers) -> None:
    replica.fold([fact("pods", only_pod("u1", 5))])
    replica.begin_resync()
    assert held(replica) == {NAME: ("u1", "Running")}, "nothing is dropped before all is known"
    replica.fold([whole_job(rv="3")])
    touched = replica.complete()
    assert held(replica) == {}
    assert touched.of(kinds.JOB) == {"ns/train": True}
    assert ("PodEvicted", "u1") in asked(replica)


def test_a_pod_that_arrives_before_its_job_is_there_when_the_job_comes() -> None:
    late = Informers(scheduler_names=["volcano"])
    late.fold([fact("pods", only_pod("u1", 5))])
    late.written(kinds.JOB, msgspec.json.encode(job(task("a", 2))))
    assert held(late) == {NAME: ("u1", "Running")}


def test_nothing_is_asked_for_where_the_replica_does_not_own_the_job() -> None:
    standby = Informers(scheduler_names=["volcano"])
    standby.fold([whole_job(rv="2", phase="Running"), fact("pods", only_pod("u1", 5, "Failed"))])
    assert asked(standby) == []
    standby.jobs["ns/train"].acquire()
    assert asked(standby) == [("PodFailed", "u1")]


def group_bytes(name: str, rv: int, owner: str | None = UID) -> bytes:
    owners = [] if owner is None else [world.job_owner("train", owner)]
    meta = {"resourceVersion": str(rv), "ownerReferences": owners}
    group = world.stored_group(f"ns/{name}", uid=name, phase="Inqueue", metadata=meta)
    return json.dumps(group).encode()


def group_in_use(replica: Informers) -> str | None:
    found = replica.jobs["ns/train"].group
    return found.metadata.name if found is not None else None


def test_a_group_from_before_names_had_uids_is_used_j27(replica: Informers) -> None:
    queue = {"metadata": {"name": "default", "uid": "q", "resourceVersion": "1"}}
    replica.written(kinds.QUEUE, json.dumps(queue).encode())
    replica.written(kinds.PODGROUP, group_bytes("train", 2))
    assert group_in_use(replica) == "train"
    record = replica.jobs["ns/train"]
    stages = advance(replica.facts_of(record), (), (), now=0.0).stages
    made = [effect for stage in stages for effect in stage]
    assert not any(isinstance(effect, effects.CreateGroup) for effect in made)
    (pods,) = (effect for effect in made if isinstance(effect, effects.CreatePods))
    annotations = json.loads(pods.builder.body(0))["metadata"]["annotations"]
    assert annotations[keys.GROUP_NAME] == "train"
    replica.written(kinds.PODGROUP, group_bytes(f"train-{UID}", 3))
    assert group_in_use(replica) == f"train-{UID}"
    replica.deleted(kinds.PODGROUP, f"ns/train-{UID}", f"train-{UID}")
    assert group_in_use(replica) == "train"
    replica.deleted(kinds.PODGROUP, "ns/train", "train")
    assert group_in_use(replica) is None


def test_a_group_that_was_there_before_its_job_is_used_j27() -> None:
    late = Informers(scheduler_names=["volcano"])
    late.written(kinds.PODGROUP, group_bytes("train", 2))
    late.written(kinds.JOB, msgspec.json.encode(job(task("a", 2))))
    assert group_in_use(late) == "train"


@pytest.mark.parametrize("owner", [None, "uid-another"])
def test_somebody_elses_group_of_the_jobs_name_is_left_alone_j27(
    replica: Informers, owner: str | None
) -> None:
    replica.written(kinds.PODGROUP, group_bytes("train", 2, owner))
    assert group_in_use(replica) is None


def test_orders_of_one_second_are_obeyed_as_they_were_given_j05(replica: Informers) -> None:
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": UID}
    for rv, name in ((9, "zulu"), (10, "alpha")):
        meta = {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "resourceVersion": str(rv),
            "creationTimestamp": "2025-10-09T09:00:00Z",
        }
        body = {"metadata": meta, "action": "AbortJob", "target": target}
        replica.written(kinds.COMMAND, json.dumps(body).encode())
    commands = replica.facts_of(replica.jobs["ns/train"]).commands
    assert [command.metadata.name for command in commands] == ["zulu", "alpha"]


def gated(rv: str, phase: str | None = None, uid: str = "uid-group") -> bytes:
    meta = {
        "resourceVersion": rv,
        "ownerReferences": [world.job_owner("train", UID)],
        "creationTimestamp": "2025-10-09T09:00:00Z",
    }
    group = world.stored_group(f"ns/train-{UID}", uid=uid, phase=phase, metadata=meta)
    return json.dumps(group).encode()


def makes_pods(replica: Informers) -> bool:
    return gate_is_open(replica.facts_of(replica.jobs["ns/train"]))


GROUP = f"ns/train-{UID}"


def test_a_group_that_scheduling_has_admitted_lets_pods_be_made_before_its_status_says_so_j23(
    replica: Informers,
) -> None:
    replica.written(kinds.PODGROUP, gated("5"))
    assert not makes_pods(replica)
    touched = replica.admitted(Identity(GROUP, "uid-group", 5))
    assert touched.of(kinds.JOB) == {"ns/train": True}
    assert makes_pods(replica)


@pytest.mark.parametrize(
    "decided_on",
    [
        Identity(GROUP, "uid-group", 4),
        Identity(GROUP, "uid-group", 6),
        Identity(GROUP, "another", 5),
        Identity("ns/unknown", "uid-group", 5),
    ],
    ids=["older", "newer", "another of that name", "unknown"],
)
def test_an_admission_holds_for_the_version_that_was_decided_on(
    replica: Informers, decided_on: Identity
) -> None:
    replica.written(kinds.PODGROUP, gated("5"))
    assert not replica.admitted(decided_on)
    assert not makes_pods(replica)


@pytest.mark.parametrize(
    ("phase", "created", "makes"),
    [
        ("Running", "2025-10-09T09:00:01Z", True),
        ("Succeeded", "2025-10-09T09:00:01Z", True),
        ("Failed", "2025-10-09T09:00:01Z", True),
        ("Pending", "2025-10-09T09:00:01Z", False),
        ("Succeeded", "2025-10-09T08:59:59Z", False),
    ],
    ids=["runs", "has-succeeded", "has-failed", "waits", "of-a-former-group"],
)
def test_a_pod_that_has_run_since_its_group_was_made_says_that_the_group_was_admitted(
    replica: Informers, phase: str, created: str, makes: bool
) -> None:
    replica.written(kinds.PODGROUP, gated("5", "Pending"))
    pod = only_pod("u1", 7, phase, creationTimestamp=created)
    replica.written(kinds.POD, json.dumps(pod).encode())
    assert makes_pods(replica) == makes


def test_an_admission_ends_with_the_next_version_of_the_group(replica: Informers) -> None:
    replica.written(kinds.PODGROUP, gated("5"))
    replica.admitted(Identity(GROUP, "uid-group", 5))
    replica.written(kinds.PODGROUP, gated("6", "Pending"))
    assert not makes_pods(replica)
    replica.written(kinds.PODGROUP, gated("7", "Inqueue"))
    assert makes_pods(replica)


def test_own_writes_that_the_stream_state_does_not_have_yet_are_known(replica: Informers) -> None:
    replica.fold([fact("pods", only_pod("u1", 5))])
    replica.written(kinds.PODGROUP, group_bytes("train", 2))
    covered = {"pods": "5", "jobs": "1", "podgroups": "1"}
    assert ("pods", f"ns/{NAME}") not in replica.unpublished(covered)
    replica.written(kinds.POD, json.dumps(only_pod("u1", 6)).encode())
    assert ("pods", f"ns/{NAME}") in replica.unpublished(covered)
    assert ("pods", f"ns/{NAME}") not in replica.unpublished({**covered, "pods": "6"})
    replica.deleted(kinds.POD, f"ns/{NAME}", "u1")
    assert ("pods", f"ns/{NAME}") in replica.unpublished({**covered, "pods": "6"})
    replica.fold([gone("u1")])
    assert ("pods", f"ns/{NAME}") not in replica.unpublished(covered)


def test_an_own_object_that_state_passes_without_showing_it_is_gone() -> None:
    """It was made and deleted between two facts: the cache has nothing to publish about it."""
    replica = Informers(scheduler_names=["volcano"])
    replica.written(kinds.PODGROUP, group_bytes("a", 5))
    replica.written(kinds.PODGROUP, group_bytes("b", 5))
    assert not replica.passed({"podgroups": "4"})
    replica.fold([fact("podgroups", json.loads(group_bytes("b", 5)))])
    replica.passed({"podgroups": "5"})
    assert list(replica.groups.keys()) == ["ns/b"]
    assert not replica.passed({"podgroups": "6"})
