"""The tombstone of a job's pod says that it had succeeded, whatever became of it since (ADR 10)."""

import msgspec

from services.cache.fold.objects import ObservedObject, Published, digest, tombstone_body_of
from services.cache.fold.publish_queue import TOMBSTONE_BODIES_MAX
from shared.api import keys
from shared.api.core import Pod, PodPhase
from shared.api.meta import OwnerReference
from shared.contracts.messages import Fact, Op
from tests.support.world import job_owner
from tests.unit.cache.test_publish_queue import World, a_pod


def jobs_pod(
    version: int,
    phase: str = PodPhase.SUCCEEDED,
    *,
    name: str = "a",
    uid: str = "u-a",
    deleting: bool = False,
    **annotations: str,
) -> tuple[str, ObservedObject]:
    told = {keys.JOB_NAME: "j", keys.TASK_SPEC: "w", keys.TASK_INDEX: "0", "a-note": "of its user"}
    metadata = {
        "annotations": {**told, **annotations},
        "ownerReferences": [job_owner("j", "u-j")],
        "deletionTimestamp": "2026-01-01T00:00:00Z" if deleting else None,
    }
    return a_pod(name, version, uid=uid, phase=phase, metadata=metadata)


def says(fact: Fact) -> Pod | None:
    """Return the pod that a tombstone tells of."""
    assert fact.op is Op.DELETE
    return msgspec.json.decode(fact.body, type=Pod | None)


def last_of(world: World) -> Fact:
    *_, last = world.takes()
    return last


def test_a_pod_that_succeeds_and_goes_before_anything_is_published_is_told_by_its_tombstone():
    world = World()
    world.lists(jobs_pod(1, PodPhase.RUNNING))
    world.publishes()
    world.puts(jobs_pod(2))
    world.puts(jobs_pod(3, deleting=True))
    world.deletes("a", 4, uid="u-a")
    told = says(last_of(world))
    assert told is not None
    assert (told.status.phase, told.metadata.uid) == ("Succeeded", "u-a")
    assert told.metadata.controller == OwnerReference(
        api_version="batch.volcano.sh/v1alpha1", kind="Job", name="j", uid="u-j", controller=True
    )
    assert told.metadata.annotations == {
        keys.JOB_NAME: "j", keys.TASK_SPEC: "w", keys.TASK_INDEX: "0"
    }, "what its user wrote stays out"  # fmt: skip


def test_a_pod_that_ends_well_because_it_was_told_to_stop_has_not_succeeded():
    world = World()
    world.lists(jobs_pod(1, PodPhase.RUNNING))
    world.publishes()
    world.puts(jobs_pod(2, PodPhase.RUNNING, deleting=True))
    world.puts(jobs_pod(3, deleting=True))
    world.deletes("a", 4, uid="u-a")
    assert says(last_of(world)) is None


def test_the_mark_of_a_controller_is_in_what_is_kept():
    world = World()
    world.lists(jobs_pod(1, PodPhase.RUNNING))
    world.publishes()
    world.puts(jobs_pod(2))
    world.puts(jobs_pod(3, **{keys.OUT_OF_SYNC: "true"}))
    world.puts(jobs_pod(4, deleting=True))
    world.deletes("a", 5, uid="u-a")
    told = says(last_of(world))
    assert told is not None
    assert keys.OUT_OF_SYNC in told.metadata.annotations


def test_a_standby_that_takes_over_tells_what_it_saw_go():
    world = World(leads=False)
    key, before = jobs_pod(1, PodPhase.RUNNING)
    world.stream[key] = Published(uid="u-a", rv="1", digest=before.digest)
    world.lists((key, before))
    world.puts(jobs_pod(2))
    world.deletes("a", 3, uid="u-a")
    world.begin()
    world.lists(version=9)
    assert says(last_of(world)) is not None


def test_a_cache_that_finds_a_succeeded_pod_gone_tells_what_the_stream_says_of_it():
    world = World(leads=False)
    key, shown = jobs_pod(1)
    seen = digest(shown.body, "1")
    world.stream[key] = Published(
        uid="u-a", rv="1", digest=seen, succeeded_body=tombstone_body_of(shown.body)
    )
    world.begin()
    world.lists(version=9)
    assert says(last_of(world)) is not None
    assert tombstone_body_of(jobs_pod(1, PodPhase.RUNNING)[1].body) == b""
    assert tombstone_body_of(jobs_pod(1, deleting=True)[1].body) == b""


def test_a_gap_of_the_watch_in_which_a_succeeded_pod_goes_loses_nothing():
    world = World()
    world.lists(jobs_pod(1, PodPhase.RUNNING))
    world.publishes()
    world.puts(jobs_pod(2))
    world.lists(version=9)
    assert says(last_of(world)) is not None


def test_a_tombstone_that_was_lost_on_its_way_says_the_same_again():
    world = World()
    world.lists(jobs_pod(1))
    world.publishes()
    world.deletes("a", 2, uid="u-a")
    lost = last_of(world)
    world.queue.failed(lost)
    again = last_of(world)
    assert again == lost
    assert says(again) is not None


def test_a_namesake_does_not_inherit_success():
    world = World()
    world.lists(jobs_pod(1))
    world.publishes()
    world.deletes("a", 2, uid="u-a")
    world.puts(jobs_pod(3, PodPhase.RUNNING, uid="u-b"))
    world.publishes()
    world.deletes("a", 4, uid="u-b")
    assert says(last_of(world)) is None


def test_what_a_standby_remembers_of_the_gone_is_bounded():
    world = World(leads=False)
    for number in range(TOMBSTONE_BODIES_MAX + 5):
        world.puts(jobs_pod(2 * number + 1, name=f"p-{number}", uid=f"u-{number}"))
        world.deletes(f"p-{number}", 2 * number + 2, uid=f"u-{number}")
    assert len(world.queue._tombstone_bodies) == TOMBSTONE_BODIES_MAX
