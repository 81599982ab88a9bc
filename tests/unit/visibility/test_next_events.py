"""What comes next of a job: said in each state before it runs."""

import pytest

from services.scheduler.engine.plan import JobExplanation
from services.visibility.queries.explaining import explain, subject_of
from services.visibility.queries.pending import PublishedWait
from services.visibility.queries.survey import survey
from tests.unit.visibility.mirrors import World
from tests.unit.visibility.test_explaining_a_job import policy

NOW = 1e9


@pytest.mark.parametrize("published", ["", "gang", "predicate", "binder"])
@pytest.mark.parametrize("phase", ["", "Pending", "Inqueue"])
@pytest.mark.parametrize("room", ["1", "4"])
@pytest.mark.parametrize("cpu", ["0", "2"])
@pytest.mark.parametrize("bound", [0, 1, 2])
def test_a_job_that_does_not_run_yet_says_what_comes_next(
    published: str, phase: str, room: str, cpu: str, bound: int
) -> None:
    """The answer mixes what the leader has published with what has happened since."""
    world = World().queue("default").node("n1", cpu="4").node("n2", cpu=room)
    world.group("job", phase=phase, minMember=2)
    for index in range(2):
        node = {"node": "n1", "phase": "Pending"} if index < bound else {}
        world.pod(f"job-{index}", "job", cpu=cpu, **node)
    subject = subject_of(world.mirror, "ns", "job")
    assert subject is not None
    assert subject.job is not None
    why = JobExplanation(
        job=subject.job.key, job_uid="u", queue="default", gate=published, message="then"
    )
    decided = PublishedWait(why, at=NOW - 1) if published else None
    rules = policy()
    now_stops = survey(world.mirror.state, rules, now=NOW).explanations.get(subject.job.key)

    found = explain(world.mirror, rules, subject, now_stops, now=NOW, decided=decided)

    assert found.next_event
    assert bound > 0 or found.gates[-1].state != "Passed"
