"""A tombstone that tells of success counts as a success that was seen (ADR 10)."""

import json
from typing import Any

import msgspec
import pytest

from services.controller.adapters.informers import Informers
from services.controller.job.completed_indexes import recorded
from services.controller.job.plan import advance
from shared.api import keys
from shared.api.batch import Job
from shared.contracts.messages import Fact, Op
from tests.support.world import fact
from tests.unit.controller.test_informers import gone, only_pod, whole_job

TELLS = "train-a-0"


def a_job(rv: int, *, retries: int = 0, version: int = 0) -> Fact:
    return whole_job(rv=str(rv), phase="Running", retryCount=retries, version=version)


def tombstone(uid: str = "p-1", rv: int = 50, **meta: Any) -> Fact:
    body = msgspec.Raw(json.dumps(only_pod(uid, rv - 1, "Succeeded", **meta)).encode())
    return Fact(kind="pods", key=f"ns/{TELLS}", uid=uid, rv=str(rv), op=Op.DELETE, body=body)


def completed(*facts: Fact, then: tuple[Fact, ...] = ()) -> set[int]:
    """Return what a controller counts that hears `facts` first, owns the job, and hears `then`."""
    replica = Informers(scheduler_names=["volcano"])
    replica.fold(facts)
    replica.complete()
    record = replica.jobs["ns/train"]
    record.acquire()
    replica.fold(then)
    return record.completed.get("a", set())


def test_a_controller_that_was_away_takes_up_what_succeeded_and_went():
    assert completed(a_job(10), tombstone()) == {0}


def test_the_order_of_job_and_tombstone_does_not_matter():
    assert completed(tombstone(), a_job(60)) == {0}


def test_a_success_that_only_its_tombstone_tells_counts_at_once():
    assert completed(a_job(10), fact("pods", only_pod("p-1", 20)), then=(tombstone(),)) == {0}


def test_success_and_deletion_in_one_look_count():
    dying = fact("pods", only_pod("p-1", 49, "Succeeded", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert completed(a_job(10), fact("pods", only_pod("p-1", 20)), then=(dying, tombstone())) == {0}


def test_a_standby_takes_up_what_the_owner_did_not_write():
    assert completed(a_job(10), fact("pods", only_pod("p-1", 20, "Succeeded")), tombstone()) == {0}


def test_a_pod_that_took_the_place_since_is_not_its_predecessor():
    assert completed(a_job(10), tombstone(), fact("pods", only_pod("p-2", 70))) == set()
    assert (
        completed(a_job(10), tombstone(), fact("pods", only_pod("p-2", 70)), gone("p-2", 80))
        == set()
    )
    assert completed(a_job(10), fact("pods", only_pod("p-2", 70)), then=(tombstone(),)) == set()


def test_a_pod_of_an_older_version_or_marked_for_deletion_does_not_count():
    assert completed(a_job(10, version=1), tombstone()) == set()
    notes = {
        keys.JOB_NAME: "train", keys.TASK_SPEC: "a", keys.TASK_INDEX: "0", keys.OUT_OF_SYNC: "true"
    }  # fmt: skip
    assert completed(a_job(10), tombstone(annotations=notes)) == set()


@pytest.mark.parametrize(("written", "counts"), [(40, {0}), (60, set())])
def test_after_a_restart_only_what_went_after_the_last_write_counts(written, counts):
    """The restart of a task strikes out its indexes and makes no new version of the job."""
    assert completed(a_job(written, retries=1), tombstone(rv=50)) == counts


def test_the_owner_does_not_count_again_what_a_restart_struck_out():
    replica = Informers(scheduler_names=["volcano"])
    replica.fold([a_job(10), fact("pods", only_pod("p-1", 20, "Succeeded"))])
    record = replica.jobs["ns/train"]
    record.acquire()
    replica.fold([a_job(40, retries=1)])
    assert record.completed.get("a", set()) == set()
    replica.fold([tombstone()])
    assert record.completed.get("a", set()) == set()


def test_the_next_look_writes_it_down_and_counts_it():
    replica = Informers(scheduler_names=["volcano"])
    queue = {"metadata": {"name": "default", "uid": "q", "resourceVersion": "1"}}
    open_queue = msgspec.Raw(json.dumps({**queue, "status": {"state": "Open"}}).encode())
    replica.fold([
        Fact(kind="queues", key="default", uid="q", rv="1", body=open_queue),
        a_job(10),
        tombstone(),
    ])  # fmt: skip
    record = replica.jobs["ns/train"]
    record.acquire()
    done = advance(
        replica.facts_of(record), record.requests.values(), record.delayed, now=1_760_000_000.0
    )
    writes = [e for stage in done.stages for e in stage if hasattr(e, "status")]
    status = writes[-1].status
    assert status.succeeded == 1
    after: Job = msgspec.structs.replace(record.job, status=status)
    assert recorded(after) == {"a": {0}}


def test_tombstones_of_jobs_that_are_gone_are_not_kept():
    replica = Informers(scheduler_names=["volcano"])
    replica.fold([tombstone()])
    replica.complete()
    assert not replica._ended
