"""The small rules: the table is whole, durations, plugin arguments, groups, queues."""

import json

import pytest

from services.controller.adapters.informers import Informers
from services.controller.adapters.records import JobRecord
from services.controller.job import effects
from services.controller.job.phases import ALIVE, TABLE, Do, KillScope, transition_for
from services.controller.job.plan import advance
from services.controller.job.podtemplate import PodBuilder
from services.controller.metrics import QueueCounts
from services.controller.queue.plan import missing
from shared.api import kinds
from shared.api.batch import FINISHED, Action, Job, JobPhase
from shared.api.meta import ObjectMeta
from shared.api.scheduling import PodGroup, PodGroupPhase, PodGroupSpec, PodGroupStatus, Queue
from shared.jobplugins.arguments import BadPluginArgument, parse
from shared.jobs.defaults import defaulted
from tests.support.structs import job
from tests.unit.controller.world import task


@pytest.mark.parametrize("phase", list(JobPhase))
def test_every_phase_has_a_row_for_every_action_j15(phase: JobPhase) -> None:
    assert None in TABLE[phase], "the row of the actions that have none of their own"
    for action in Action:
        move = transition_for(phase, action)
        leads_to = {move.enters, *(move.then.leads_to if move.then else ())}
        assert leads_to <= {None, *TABLE}, "a phase that follows has rows, too"
        assert move.enters is None or move.do is Do.KILL, "a phase is entered by a kill"
    assert TABLE.keys() == set(JobPhase)


def test_nothing_leaves_a_finished_phase_j20() -> None:
    for phase in FINISHED:
        assert all(transition_for(phase, action).enters is None for action in Action)
        assert all(transition_for(phase, action).then is None for action in Action)


def test_only_a_job_that_is_alive_makes_pods() -> None:
    makers = {
        phase
        for phase in JobPhase
        for action in (Action.SYNC_JOB,)
        if transition_for(phase, action).do is Do.SYNC
    }
    assert makers == ALIVE | {JobPhase.RESTARTING}, (
        "Restarting syncs only to see whether it is over"
    )


def test_a_restart_of_a_part_leaves_the_rest_alone_j16() -> None:
    targets = {
        Action.RESTART_TASK: KillScope.TASK,
        Action.RESTART_POD: KillScope.POD,
        Action.RESTART_PARTITION: KillScope.PARTITION,
    }
    for phase in (*ALIVE, JobPhase.RESTARTING):
        for action, scope in targets.items():
            assert transition_for(phase, action).scope is scope


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--on"], {"on": True, "port": "22"}),
        (["-on=false", "--port=23"], {"on": False, "port": "23"}),
        (["--port", "24"], {"on": False, "port": "24"}),
        ([], {"on": False, "port": "22"}),
        (["--nope", "on", "--port=23"], {"on": False, "port": "23"}),
    ],
)
def test_plugin_arguments_are_flags_in_gos_style(words: list[str], expected: dict) -> None:
    assert parse(words, {"on": False, "port": "22"}) == expected


@pytest.mark.parametrize("words", [["--on=maybe"], ["--port"], ["--nope", "--port"]], ids="".join)
def test_a_plugin_argument_that_cannot_be_read_is_refused(words: list[str]) -> None:
    with pytest.raises(BadPluginArgument):
        parse(words, {"on": False, "port": "22"})


def test_env_tells_every_container_the_index_of_its_pod_jp1() -> None:
    plain = task("a", 3)
    plain["template"]["spec"]["initContainers"] = [{"name": "init", "image": "busybox"}]
    whole = defaulted(job(plain, plugins={"env": []}), scheduler_name="volcano")
    pod = json.loads(PodBuilder(whole, whole.spec.tasks[0]).body(2))
    for group in ("containers", "initContainers"):
        env = {e["name"]: e["value"] for e in pod["spec"][group][0]["env"]}
        assert env == {"VK_TASK_INDEX": "2", "VC_TASK_INDEX": "2"}


def test_a_claim_in_the_job_gets_the_same_name_each_time_j30() -> None:
    volumes = [{"mountPath": "/data", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]
    whole = defaulted(job(task("a", 1), volumes=volumes), scheduler_name="volcano")
    first, second = (json.loads(PodBuilder(whole, whole.spec.tasks[0]).body(0)) for _ in range(2))
    assert first == second
    claim = first["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim.startswith("train-pvc-")
    assert len(claim) == len("train-pvc-") + 12


def test_the_default_queues_are_made_root_first_ca02() -> None:
    assert [queue["metadata"]["name"] for queue in missing(())] == ["root", "default"]
    assert [queue["metadata"]["name"] for queue in missing({"root"})] == ["default"]
    assert missing({"root", "default"}) == ()


def test_a_named_claim_that_is_missing_holds_a_new_job_back_j30() -> None:
    replica = Informers(scheduler_names=["volcano"])
    waiting = job(task("a", 1), volumes=[{"mountPath": "/d", "volumeClaimName": "data"}])
    record = replica_of(replica, waiting)
    assert replica.facts_of(record).claims_missing == ("data",)
    held = advance(replica.facts_of(record), (), (), now=0.0)
    (write,), (told,) = held.stages
    assert isinstance(write, effects.WriteJobStatus)
    assert "spec.volumes[0].volumeClaimName: no claim 'data'" in write.status.state.message
    assert isinstance(told, effects.RecordEvent)
    assert (told.reason, told.warning) == ("PVCError", True)
    claim = json.dumps({"metadata": {"name": "data", "namespace": "ns", "uid": "c"}}).encode()
    touched = replica.written(kinds.PVC, claim)
    assert touched.of(kinds.JOB) == {"ns/train": False}
    assert replica.facts_of(record).claims_missing == ()


def replica_of(replica: Informers, first: Job) -> JobRecord:
    """A replica that knows one job and an open queue."""
    queue = Queue(metadata=ObjectMeta(name="default", uid="q"))
    replica.written(kinds.QUEUE, kinds.encode(kinds.QUEUE, queue))
    replica.written(kinds.JOB, kinds.encode(kinds.JOB, first))
    return replica.jobs[first.metadata.key]


def test_podgroups_are_counted_by_queue_and_phase_q03() -> None:
    groups = [
        PodGroup(spec=PodGroupSpec(queue="a"), status=PodGroupStatus(phase=phase))
        for phase in (PodGroupPhase.RUNNING, PodGroupPhase.RUNNING, None)
    ]
    counts = QueueCounts(groups=lambda: groups, queues=lambda: ["a", "empty"])
    found = {
        (family.name, sample.labels["queue_name"]): sample.value
        for family in counts.collect()
        for sample in family.samples
    }
    assert found["volcano_queue_pod_group_running_count", "a"] == 2
    assert found["volcano_queue_pod_group_pending_count", "a"] == 1
    assert found["volcano_queue_pod_group_running_count", "empty"] == 0
    assert len(found) == 5 * 2


def test_groups_are_counted_by_the_queue_that_they_are_in_now_q02() -> None:
    replica = Informers(scheduler_names=["volcano"])

    def put(name: str, queue: str, rv: int) -> None:
        meta = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(rv)}
        body = json.dumps({"metadata": meta, "spec": {"queue": queue}}).encode()
        replica.written(kinds.PODGROUP, body)

    put("x", "a", 1)
    put("y", "a", 2)
    put("y", "b", 4)
    put("y", "a", 3)
    assert replica.groups_per_queue() == {"a": 1, "b": 1}
    replica.deleted(kinds.PODGROUP, "ns/x", "x")
    assert replica.groups_per_queue() == {"b": 1}
