"""`pumice why`, `when` and the others on a local cluster, whose visibility answers them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

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


PATIENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pumice.queries import client, refresh
from pumice.cli.main import main
refresh._EVERY_S = 3600.0
client.WATCH_S = 1
open_watch = client.QueryClient.watch
async def watch(self, watched, version):
    stream = await open_watch(self, watched, version)
    sys.stderr.write("watches" + chr(10))
    sys.stderr.flush()
    return stream
client.QueryClient.watch = watch
sys.exit(main(sys.argv[1:]))
"""
"""The command with a clock that never comes, with short watches, and a line for each of them.

It heeds Ctrl-C also where the suite runs in the background of a script, whose children do not.
"""


@contextmanager
def followed(cluster: Path, folder: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command that goes on; it writes to the files `out` and `err` of a folder."""
    environ = {"KUBECONFIG": str(cluster / "kubeconfig"), "XDG_STATE_HOME": str(cluster.parent)}
    line = [sys.executable, "-c", PATIENT, *words]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        running = subprocess.Popen(
            line, cwd=pages.ROOT, env={**os.environ, **environ}, stdout=out, stderr=err
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


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

    told = await says(run, "place 1 in line", "pumice", "why", "waits")
    assert told.startswith("Job default/waits: Pending in queue default, place 1 in line\n")
    assert "FAILED" in told
    listed = await says(run, '"waits"', "kubectl-pumice", "when", "-A", "-o", "json")
    assert [job["metadata"]["name"] for job in json.loads(listed)["items"]] == ["waits"]
    assert run("pumice", "when", "waits")[0] in {0, 3}
    await says(run, "waits", "pumice", "queue", "line", "default")
    await says(run, "default", "pumice", "queue", "tree")
    await says(run, "Running", "pumice", "timeline", "runs")
    picture = await says(run, "1 waiting, 1 running, 2 nodes", "pumice", "top", "--once")
    assert "default/runs" in picture

    assert run("pumice", "what-if", "-f", "-", stdin=JOB.format(cpu="100m"))[0] == 0
    code, told = run("pumice", "what-if", "-f", "-", stdin=JOB.format(cpu="1000"))
    assert code == 3
    assert told.startswith("does not start now: stopped at the gate ")
    smaller = ("--change-queue", "default", "--capability", "cpu=1")
    code, told = run("pumice", "what-if", "-f", "-", *smaller, stdin=JOB.format(cpu="100m"))
    assert code == 3
    assert "at the gate enqueue: queue resource quota insufficient" in told
    code, told = run("pumice", "what-if", "--change-queue", "default", "--capability", "cpu=much")
    assert code == 1
    assert "spec.changeQueue.capability" in told
    assert run("pumice", "__complete", "what-if", "--change-queue", "def") == (0, "default\n")
    assert run("pumice", "__complete", "why", "w") == (0, "waits\n")
    assert run("pumice", "why", "wiats") == (
        1,
        "error: nothing is known of default/wiats; did you mean waits?\n",
    )


@pytest.mark.timeout(250)
async def test_a_job_without_a_group_is_listed_with_what_its_controller_says(
    run: Run, tmp_path: Path
) -> None:
    job = yaml.safe_load(JOB.format(cpu="100m"))
    job["metadata"]["name"] = "claims"
    job["spec"]["volumes"] = [{"mountPath": "/data", "volumeClaimName": "nowhere"}]
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    assert run("vcctl", "job", "run", "-f", str(file))[0] == 0

    told = await says(run, "nowhere", "pumice", "why")

    (line,) = [line for line in told.splitlines() if line.startswith("default/claims: ")]
    assert line.startswith("default/claims: no PodGroup yet: PVCError: ")
    assert run("vcctl", "job", "delete", "-N", "claims")[0] == 0


@pytest.mark.timeout(250)
@pytest.mark.parametrize("words", [("why",), ("queue", "line", "default")], ids=" ".join)
async def test_a_watch_shows_changes_without_a_clock_across_its_own_ends(
    run: Run, cluster: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Watches of a second follow each other; Ctrl-C ends the command with the code of the page."""
    out, err = tmp_path / "out", tmp_path / "err"
    with followed(cluster, tmp_path, *words, "-w") as running:

        async def comes(described: str, found: Callable[[], bool]) -> None:
            def probe() -> bool:
                assert running.poll() is None, err.read_text()
                return found()

            await until(probe, deadline_s=60, describe=described)

        def newest() -> str:
            return out.read_text().split("\n\n")[-1]

        await comes("three watches", lambda: err.read_text().count("watches") > 2)
        assert "late" not in newest()
        job = ("vcctl", "job", "run", "-N", "late", "-R", "cpu=1000", "-L", "cpu=1000")
        assert run(*job)[0] == 0
        await comes("the job", lambda: "late" in newest())
        assert run("vcctl", "job", "delete", "-N", "late")[0] == 0
        await comes("its end", lambda: bool(newest()) and "late" not in newest())
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 130
    assert set(err.read_text().split()) == {"watches"}


@pytest.mark.timeout(250)
async def test_a_timeline_goes_on_when_something_happens(
    run: Run, cluster: Path, tmp_path: Path
) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    job = ("vcctl", "job", "run", "-N", "lives", "-R", "cpu=1000", "-L", "cpu=1000")
    assert run(*job)[0] == 0
    await says(run, "Created", "pumice", "timeline", "lives")
    with followed(cluster, tmp_path, "timeline", "lives", "-w"):
        await until(lambda: "watches" in err.read_text(), deadline_s=60, describe="a stream")
        assert "Aborted" not in out.read_text()
        assert run("vcctl", "job", "suspend", "-N", "lives")[0] == 0
        await until(lambda: "Aborted" in out.read_text(), deadline_s=60, describe=out.read_text)
    assert run("vcctl", "job", "delete", "-N", "lives")[0] == 0
