"""The jobs of the demo."""

import re
from pathlib import Path

import pytest

from pumice.demo import cast
from pumice.local.errors import LocalError
from shared.model.quantity import milli

NODES, NODE_CPU = 8, 8
EXAMPLES = Path(__file__).parents[3] / "examples"
RUN_SECONDS = "pumice.dev/run-seconds"


def cpu(role: cast.Role, *, least: bool = False) -> float:
    """What a job asks for in CPUs, in whole or for its minimum."""
    total = 0
    for task in role.manifest["spec"]["tasks"]:
        request = task["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        count = task.get("minAvailable", task["replicas"]) if least else task["replicas"]
        total += milli(request) * count
    return total / 1000


def test_the_first_act_leaves_room_for_the_least_of_the_second_and_none_for_the_third():
    first, second, third = cast.acts()
    room = NODES * NODE_CPU - sum(cpu(role) for role in first)
    assert sum(cpu(role, least=True) for role in second) <= room < sum(map(cpu, second))
    assert sum(cpu(role, least=True) for role in third) > room
    assert all(cpu(role) <= NODES * NODE_CPU for role in third)


def test_every_job_of_the_demo_ends_by_itself():
    for role in (role for act in cast.acts() for role in act):
        spec = role.manifest["spec"]
        annotated = [
            RUN_SECONDS in task["template"].get("metadata", {}).get("annotations", {})
            for task in spec["tasks"]
        ]
        assert any(annotated), role.key


def test_names_are_unique_and_all_jobs_are_for_our_scheduler():
    roles = [role for act in cast.acts() for role in act]
    assert len({role.key for role in roles}) == len(roles) == 5
    assert {role.manifest["spec"]["schedulerName"] for role in roles} == {"volcano"}


def test_every_example_file_is_played():
    played = {EXAMPLES / file for act in cast.ACTS for file in act}
    assert set((EXAMPLES / "demo").glob("*.yaml")) <= played


def test_the_jobs_of_the_demo_are_the_examples_run_make_crds_when_this_fails():
    for file in (file for act in cast.ACTS for file in act):
        assert (cast.FILES / file).read_bytes() == (EXAMPLES / file).read_bytes()


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
    for file in (file for act in cast.ACTS for file in act):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        if text is not None:
            path.write_text(text)
    first = tmp_path / cast.ACTS[0][0]
    with pytest.raises(LocalError, match=re.escape(str(first)) + " " + said):
        cast.acts(tmp_path)
