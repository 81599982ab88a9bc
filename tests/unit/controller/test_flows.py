"""Flows: when jobs start, what becomes of the flow, what its status tells (F01 to F05)."""

import itertools
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from services.controller.jobflow.plan import FlowPlan, plan
from services.controller.jobflow.status import NEXT, FlowProgress, job_of, next_phase
from services.controller.jobtemplate.reconciler import status_of
from shared.api import kinds
from shared.api.batch import Job, JobPhase, JobState, JobStatus
from shared.api.flow import FlowPhase, JobFlow, JobTemplate, RetainPolicy
from shared.jobs.flows import NOT_DAG

PENDING, RUNNING = JobPhase.PENDING, JobPhase.RUNNING
COMPLETED, FAILED = JobPhase.COMPLETED, JobPhase.FAILED


def template(name: str) -> JobTemplate:
    body = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"queue": name}}
    found: JobTemplate = kinds.decode(kinds.JOBTEMPLATE, msgspec.json.encode(body))
    return found


class FlowWorld:
    """A flow, its templates and jobs; `look` does what its plan says."""

    def __init__(self, needs: Mapping[str, Sequence[str]], **spec: object) -> None:
        flows = [{"name": name, "dependsOn": {"targets": needs[name]}} for name in needs]
        body = {
            "metadata": {"name": "f", "namespace": "ns", "uid": "flow"},
            "spec": {"flows": flows, **spec},
        }
        self.flow: JobFlow = kinds.decode(kinds.JOBFLOW, msgspec.json.encode(body))
        self.templates = {name: template(name) for name in needs}
        self.jobs: dict[str, Job] = {}
        self._clock = itertools.count(10)

    def look(self) -> FlowPlan:
        found = plan(self.flow, list(self.jobs.values()), self.templates)
        self.flow = msgspec.structs.replace(self.flow, status=found.status)
        for job in found.delete:
            del self.jobs[job.metadata.name]
        for job in found.create:
            assert job.metadata.name not in self.jobs
            meta = msgspec.structs.replace(
                job.metadata, creation_timestamp=f"2026-01-01T00:{next(self._clock)}:00Z"
            )
            self.jobs[job.metadata.name] = msgspec.structs.replace(job, metadata=meta)
        return found

    def enter(self, entry: str, phase: JobPhase) -> None:
        """Have the job of an entry enter a phase, and look."""
        state = JobState(phase=phase, last_transition_time=f"2026-01-01T00:{next(self._clock)}:00Z")
        name = f"f-{entry}"
        self.jobs[name] = msgspec.structs.replace(self.jobs[name], status=JobStatus(state=state))
        self.look()

    @property
    def phase(self) -> FlowPhase | None:
        return self.flow.status.state.phase

    def entries(self) -> set[str]:
        return {name.removeprefix("f-") for name in self.jobs}


def test_a_job_is_made_of_its_template_and_says_so_f01() -> None:
    job = job_of(FlowWorld({"a": []}).flow, template("a"))
    marks = {
        "volcano.sh/createdByJobTemplate": "ns.a",
        "volcano.sh/createdByJobFlow": "ns.f",
    }
    assert job.metadata.name == "f-a"
    assert job.metadata.labels == job.metadata.annotations == marks
    assert job.spec.queue == "a"
    (owner,) = job.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("JobFlow", "flow", True)


def test_a_job_starts_when_all_its_targets_have_completed_f02() -> None:
    world = FlowWorld({"a": [], "b": [], "c": ["a", "b"], "d": ["c"]})
    world.look()
    assert world.entries() == {"a", "b"}
    for entry, phase, started in (
        ("a", PENDING, {"a", "b"}),
        ("a", RUNNING, {"a", "b"}),
        ("a", COMPLETED, {"a", "b"}),
        ("b", RUNNING, {"a", "b"}),
        ("b", COMPLETED, {"a", "b", "c"}),
        ("c", COMPLETED, {"a", "b", "c", "d"}),
    ):
        world.enter(entry, phase)
        assert world.entries() == started, (entry, phase)
    assert world.phase is FlowPhase.RUNNING
    world.enter("d", COMPLETED)
    assert world.phase is FlowPhase.SUCCEED


def test_a_look_that_is_repeated_asks_for_nothing() -> None:
    world = FlowWorld({"a": [], "b": ["a"]})
    world.look()
    world.enter("a", COMPLETED)
    world.look()
    again = world.look()
    assert again.status == world.flow.status
    assert not again.create
    assert not again.delete
    assert not again.notes


@pytest.mark.parametrize("end", [FAILED, JobPhase.TERMINATED])
def test_a_flow_fails_with_a_job_and_starts_no_more_of_them_f03(end: JobPhase) -> None:
    world = FlowWorld({"a": [], "b": ["a"], "x": [], "y": ["x"]})
    world.look()
    world.enter("a", end)
    assert world.phase is FlowPhase.FAILED
    world.enter("x", COMPLETED)
    assert world.entries() == {"a", "x"}
    assert world.phase is FlowPhase.FAILED
    assert world.flow.status.completed_jobs == ("f-x",), "what runs is followed to its end"


@pytest.mark.parametrize("phase", [JobPhase.COMPLETING, JobPhase.TERMINATING])
def test_a_job_on_its_way_to_an_end_is_in_no_list_f03(phase: JobPhase) -> None:
    world = FlowWorld({"a": []})
    world.look()
    world.enter("a", phase)
    status = world.flow.status
    assert (status.running_jobs, status.un_know_jobs, status.completed_jobs) == ((), (), ())
    assert [entry.state for entry in status.job_status_list] == [phase]


@pytest.mark.parametrize("phase", [JobPhase.ABORTED, JobPhase.RESTARTING])
def test_a_job_that_may_come_back_does_not_fail_its_flow_f03(phase: JobPhase) -> None:
    world = FlowWorld({"a": []})
    world.look()
    world.enter("a", phase)
    assert world.phase is FlowPhase.RUNNING
    assert world.flow.status.un_know_jobs == ("f-a",)


def test_what_was_done_is_not_done_again_when_its_job_is_deleted_f03() -> None:
    world = FlowWorld({"a": [], "b": ["a"]})
    world.look()
    world.enter("a", COMPLETED)
    del world.jobs["f-a"]
    world.look()
    assert world.entries() == {"b"}
    assert world.flow.status.completed_jobs == ("f-a",)
    world.enter("b", COMPLETED)
    assert world.phase is FlowPhase.SUCCEED
    assert sorted(world.flow.status.conditions) == ["f-a", "f-b"]


def test_a_job_that_was_deleted_before_its_end_is_made_again() -> None:
    world = FlowWorld({"a": []})
    world.look()
    world.enter("a", RUNNING)
    del world.jobs["f-a"]
    world.look()
    assert world.entries() == {"a"}
    assert world.flow.status.running_jobs == ()


def test_a_flow_that_succeeded_deletes_its_jobs_if_it_wants_that_f04() -> None:
    world = FlowWorld({"a": [], "b": []}, jobRetainPolicy=RetainPolicy.DELETE)
    world.look()
    world.enter("a", COMPLETED)
    assert world.entries() == {"a", "b"}
    world.enter("b", COMPLETED)
    assert world.entries() == set()
    world.look()
    assert world.entries() == set()
    assert world.phase is FlowPhase.SUCCEED


def test_a_flow_that_is_being_deleted_starts_nothing_f03() -> None:
    world = FlowWorld({"a": [], "b": ["a"]})
    world.look()
    meta = msgspec.structs.replace(world.flow.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    world.flow = msgspec.structs.replace(world.flow, metadata=meta)
    world.enter("a", COMPLETED)
    assert world.entries() == {"a"}
    assert world.phase is FlowPhase.TERMINATING


def test_the_course_of_a_job_is_told_phase_by_phase_f03() -> None:
    world = FlowWorld({"a": []})
    world.look()
    for phase in (PENDING, RUNNING, JobPhase.RESTARTING, RUNNING, COMPLETED):
        world.enter("a", phase)
        world.look()
    (entry,) = world.flow.status.job_status_list
    histories = entry.running_histories
    assert [h.state for h in histories] == [
        "Pending",
        "Running",
        "Restarting",
        "Running",
        "Completed",
    ]
    for one, following in itertools.pairwise(histories):
        assert one.end_timestamp == following.start_timestamp
    assert histories[-1].end_timestamp is None
    assert entry.end_timestamp == histories[-1].start_timestamp


def test_a_missing_template_is_told_and_waited_for() -> None:
    world = FlowWorld({"a": [], "b": []})
    missing = world.templates.pop("b")
    (note,) = world.look().notes
    assert note.reason == "JobTemplateMissing"
    assert "b" in note.message
    assert world.entries() == {"a"}
    world.templates["b"] = missing
    assert world.look().notes == ()
    assert world.entries() == {"a", "b"}


@pytest.mark.parametrize(
    ("needs", "message"),
    [
        ({"a": ["z"]}, f"spec.flows[0].dependsOn.targets: {NOT_DAG}: vertex is not defined: z"),
        ({"a": ["a"]}, f"spec.flows: {NOT_DAG}: a waits for itself"),
        ({"x": [], "a": ["b"], "b": ["a"]}, f"spec.flows: {NOT_DAG}: a, b wait for each other"),
    ],
)
def test_a_flow_that_cannot_be_is_told_and_starts_nothing(
    needs: dict[str, list[str]], message: str
) -> None:
    world = FlowWorld(needs)
    assert [note.message for note in world.look().notes] == [message]
    assert world.entries() == set()
    assert world.phase is FlowPhase.PENDING


def test_probe_and_patch_are_told_to_have_no_effect_f02() -> None:
    world = FlowWorld({"a": []})
    entry = {"name": "a", "patch": {}, "dependsOn": {"probe": {}}}
    body = {"metadata": {"name": "f", "namespace": "ns"}, "spec": {"flows": [entry]}}
    world.flow = kinds.decode(kinds.JOBFLOW, msgspec.json.encode(body))
    assert [note.message for note in world.look().notes] == [
        "spec.flows[0].patch has no effect, as in Volcano",
        "spec.flows[0].dependsOn.probe has no effect, as in Volcano",
    ]
    assert world.entries() == {"a"}


def test_both_ends_of_a_flow_are_final_f03() -> None:
    for end in (FlowPhase.SUCCEED, FlowPhase.FAILED):
        for progress in set(FlowProgress) - {FlowProgress.DELETED}:
            assert next_phase(end, progress) is end
    assert NEXT.keys() == set(FlowPhase)
    assert next_phase(None, FlowProgress.WAITING) is FlowPhase.PENDING


def test_a_template_names_the_jobs_made_from_it_f05() -> None:
    flow = FlowWorld({"b": [], "a": []}).flow
    jobs = [job_of(flow, template("b")), job_of(flow, template("a"))]
    assert status_of(jobs).job_depends_on_list == ("ns.f-a", "ns.f-b")
