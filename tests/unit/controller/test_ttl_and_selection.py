"""When finished jobs are deleted (J38, G01), and which controllers run (M03, M04)."""

import msgspec
import pytest

from services.controller.controllers import BUILT, SHARDING, selected
from services.controller.garbage.reconciler import due_at
from services.controller.settings import ControllerSettings
from shared.api.batch import JobPhase, JobState, JobStatus
from shared.runtime.errors import Rejected
from tests.support.structs import job
from tests.unit.controller.world import task

ENDED = "2026-01-01T00:00:00Z"
ENDED_S = 1_767_225_600.0


@pytest.mark.parametrize(
    ("phase", "ttl_s", "since", "due"),
    [
        pytest.param(JobPhase.COMPLETED, 60, ENDED, ENDED_S + 60, id="completed"),
        pytest.param(JobPhase.FAILED, 60, ENDED, ENDED_S + 60, id="failed"),
        pytest.param(JobPhase.TERMINATED, 60, ENDED, ENDED_S + 60, id="terminated"),
        pytest.param(JobPhase.COMPLETED, 0, ENDED, ENDED_S, id="at-once"),
        pytest.param(JobPhase.ABORTED, 0, ENDED, None, id="aborted-can-be-resumed"),
        pytest.param(JobPhase.RUNNING, 0, ENDED, None, id="running"),
        pytest.param(JobPhase.COMPLETED, None, ENDED, None, id="no-ttl"),
        pytest.param(JobPhase.COMPLETED, 5, None, None, id="no-time-of-its-end"),
    ],
)
def test_a_finished_job_is_due_when_its_time_is_up_g01(
    phase: JobPhase, ttl_s: int | None, since: str | None, due: float | None
) -> None:
    given = {} if ttl_s is None else {"ttlSecondsAfterFinished": ttl_s}
    status = JobStatus(state=JobState(phase=phase, last_transition_time=since))
    assert due_at(msgspec.structs.replace(job(task("a", 1), **given), status=status)) == due


def test_a_job_that_is_being_deleted_is_not_deleted_again_g01() -> None:
    plain = job(task("a", 1), ttlSecondsAfterFinished=0)
    status = JobStatus(state=JobState(phase=JobPhase.FAILED, last_transition_time=ENDED))
    meta = msgspec.structs.replace(plain.metadata, deletion_timestamp=ENDED)
    assert due_at(msgspec.structs.replace(plain, metadata=meta, status=status)) is None


@pytest.mark.parametrize(
    ("words", "names"),
    [
        pytest.param(ControllerSettings().controllers, set(BUILT) - {SHARDING}, id="default"),
        pytest.param(["*", "-gc-controller"], set(BUILT) - {"gc-controller"}, id="all-but-one"),
        pytest.param(["-gc-controller", "*"], set(BUILT) - {"gc-controller"}, id="any-order"),
        pytest.param(
            ["+job-controller", "pg-controller"], {"job-controller", "pg-controller"}, id="two"
        ),
        pytest.param(
            ["*", "+colocation-config-controller"],
            {*BUILT, "colocation-config-controller"},
            id="absent",
        ),
        pytest.param([], set(), id="none"),
    ],
)
def test_controllers_are_chosen_by_name_m03(words: list[str], names: set[str]) -> None:
    assert selected(words) == names


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["*", "-gcc"], "'gcc' is neither", id="unknown"),
        pytest.param([""], "'' is neither", id="empty"),
        pytest.param(["gc-controller", "-gc-controller"], "both added and taken", id="both"),
    ],
)
def test_a_choice_that_means_nothing_is_refused_m03(words: list[str], why: str) -> None:
    with pytest.raises(Rejected, match=why):
        selected(words)
