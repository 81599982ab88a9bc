"""A Job is read from what a user pastes; anything else is refused in words for him."""

import json

import pytest

from pumice.web.server import PastedError, job_in

JOB = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    "text", [JOB, f"kind: Queue\n---\n{JOB}", json.dumps({"apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job", "metadata": {"name": "a"}})]
)  # fmt: skip
def test_the_first_job_is_read_from_yaml_and_json(text):
    assert json.loads(job_in(text))["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no object"),
        ("kind: Job\napiVersion: batch/v1", "here is Job"),
        ("kind: Pod", "here is Pod"),
        ("a: [", "neither YAML nor JSON"),
        ("[" * 100_000, "neither YAML nor JSON"),
        ("a: &a [1]\nb: [*a, *a]", "aliases"),
        ("!!python/object/apply:os.system [ls]", "neither YAML nor JSON"),
        (f"{JOB}? [a]\n: 1", "neither YAML nor JSON"),
    ],
)
def test_everything_else_is_refused(text, words):
    with pytest.raises(PastedError, match=words):
        job_in(text)
