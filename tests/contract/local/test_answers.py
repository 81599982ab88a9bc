"""`pumice why`, `when` and the others on a local cluster, whose visibility answers them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.goprograms import at_a_terminal
from tests.support.wait import until

PROGRAMS = Path(sys.executable).parent
Run = Callable[..., tuple[int, str]]
JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: imagined}}
spec:
  minAvailable: 1
  queue: default
  tasks:
  - replicas: 1
    name: t
    template:
      spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}
"""


@pytest.fixture
def run(cluster: Path) -> Run:
    """`run("pumice", "why")`: exit code, and stdout behind which stderr stands."""

    def run(*line: str, stdin: str = "") -> tuple[int, str]:
        done = at_a_terminal(
            line,
            programs=PROGRAMS,
            cwd=pages.ROOT,
            stdin=stdin,
            timeout_s=60,
            KUBECONFIG=str(cluster / "kubeconfig"),
            XDG_STATE_HOME=str(cluster.parent),  # without a local cluster in the usual place
        )
        return done.returncode, done.stdout + done.stderr

    return run


async def says(run: Run, word: str, *line: str) -> str:
    """Wait until the output of a line has a word in it; return the output."""
    said = (0, "")

    def found() -> str | None:
        nonlocal said
        said = run(*line)
        return said[1] if word in said[1] else None

    return await until(found, deadline_s=60, describe=lambda: f"{word!r} in {said}")


@pytest.mark.timeout(250)
async def test_each_question_is_answered_about_a_job_that_waits(run: Run) -> None:
    assert run("vcctl", "job", "run", "-N", "runs", "-r", "2", "-R", "cpu=1")[0] == 0
    assert run("vcctl", "job", "run", "-N", "waits", "-R", "cpu=1000", "-L", "cpu=1000")[0] == 0

    told = await says(run, "needs 1000 cpu", "pumice", "why", "waits")
    assert told.startswith("Job default/waits: Pending in queue default, place 1 in line\n")
    assert "FAILED" in told
    code, listed = run("kubectl-pumice", "when", "-A", "-o", "json")
    assert code == 0
    assert [job["metadata"]["name"] for job in json.loads(listed)["items"]] == ["waits"]
    assert run("pumice", "when", "waits")[0] in {0, 3}
    await says(run, "waits", "pumice", "queue", "line", "default")
    await says(run, "default", "pumice", "queue", "tree")
    await says(run, "Running", "pumice", "timeline", "runs")
    picture = await says(run, "default/runs", "pumice", "top", "--once")
    assert "1 waiting, 1 running, 2 nodes" in picture

    assert run("pumice", "what-if", "-f", "-", stdin=JOB.format(cpu="100m"))[0] == 0
    code, told = run("pumice", "what-if", "-f", "-", stdin=JOB.format(cpu="1000"))
    assert code == 3
    assert told.startswith("does not start now: stopped at the gate ")
    assert run("pumice", "__complete", "why", "w") == (0, "waits\n")
    assert run("pumice", "why", "wiats") == (
        1,
        "error: nothing is known of default/wiats; did you mean waits?\n",
    )
