"""The jobs of the demo."""

import re
from pathlib import Path

import pytest

from pumice.demo import story
from pumice.local.errors import LocalError
from shared.model.quantity import milli

NODES, NODE_CPU = 8, 8
EXAMPLES = Path(__file__).parents[3] / "examples"
RUN_SECONDS = "pumice.dev/run-seconds"


def cpu(job: story.DemoJob, *, least: bool = False) -> float:
    """What a job asks for in CPUs, in whole or for its minimum."""
    total = 0
    for task in job.manifest["spec"]["tasks"]:
        request = task["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        count = task.get("minAvailable", task["replicas"]) if least else task["replicas"]
        total += milli(request) * count
    return total / 1000


def test_the_first_wave_leaves_room_for_the_least_of_the_second_and_none_for_the_third():
    first, second, third = story.waves()
    room = NODES * NODE_CPU - sum(cpu(job) for job in first)
    assert sum(cpu(job, least=True) for job in second) <= room < sum(map(cpu, second))
    assert sum(cpu(job, least=True) for job in third) > room
    assert all(cpu(job) <= NODES * NODE_CPU for job in third)


def test_every_job_of_the_demo_ends_by_itself():
    for job in (job for wave in story.waves() for job in wave):
        spec = job.manifest["spec"]
        annotated = [
            RUN_SECONDS in task["template"].get("metadata", {}).get("annotations", {})
            for task in spec["tasks"]
        ]
        assert any(annotated), job.key


def test_names_are_unique_and_all_jobs_are_for_our_scheduler():
    jobs = [job for wave in story.waves() for job in wave]
    assert len({job.key for job in jobs}) == len(jobs) == 5
    assert {job.manifest["spec"]["schedulerName"] for job in jobs} == {"volcano"}


def test_every_example_file_is_played():
    played = {EXAMPLES / file for wave in story.WAVES for file in wave}
    assert set((EXAMPLES / "demo").glob("*.yaml")) <= played


def test_the_jobs_of_the_demo_are_the_examples_run_make_crds_when_this_fails():
    for file in (file for wave in story.WAVES for file in wave):
        assert (story.FILES / file).read_bytes() == (EXAMPLES / file).read_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is missing; install Pumice again"),
        ("- a list", "is no job"),
        ("kind: Job", "is no job"),
        ("a: [", "is no job"),
    ],
)
def test_a_file_that_is_no_job_is_named(tmp_path: Path, text, said):
    for file in (file for wave in story.WAVES for file in wave):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        if text is not None:
            path.write_text(text)
    first = tmp_path / story.WAVES[0][0]
    with pytest.raises(LocalError, match=re.escape(str(first)) + " " + said):
        story.waves(tmp_path)
