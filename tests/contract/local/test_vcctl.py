"""vcctl as a person uses it: as a process, against a local cluster with all services."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.goprograms import at_a_terminal
from tests.support.wait import until

PAGE = pages.ROOT / "docs" / "vcctl.md"
PROGRAMS = Path(sys.executable).parent
Vcctl = Callable[..., str]
FLOW = """\
kind: JobFlow
metadata: {name: flow}
spec: {jobRetainPolicy: retain, flows: [{name: template}]}
"""
TEMPLATE = """\
kind: JobTemplate
metadata: {name: template}
spec:
  minAvailable: 1
  queue: default
  tasks:
  - {replicas: 1, name: t, template: {spec: {containers: [{name: c, image: i}]}}}
"""


@pytest.fixture
def run(cluster: Path, tmp_path: Path) -> Vcctl:
    """`run("vcctl", "job", "list")`: the output of a program that must end with 0."""

    def run(*line: str) -> str:
        done = at_a_terminal(
            line,
            programs=PROGRAMS,
            cwd=tmp_path,
            timeout_s=60,
            KUBECONFIG=str(cluster / "kubeconfig"),
        )
        assert (done.returncode, done.stderr) == (0, ""), (line, done.stdout, done.stderr)
        return done.stdout

    return run


async def phase_of(run: Vcctl, name: str, wanted: str) -> None:
    """Wait until the list shows a job in a phase."""

    def shown() -> bool | None:
        row = next((r for r in run("vcctl", "job", "list").splitlines() if r.startswith(name)), "")
        return f" {wanted} " in row or None

    await until(shown, deadline_s=60, describe=f"{name} is {wanted}")


@pytest.mark.timeout(200)
async def test_a_job_is_run_shown_stopped_resumed_and_deleted(run: Vcctl) -> None:
    assert run("vcctl", "job", "run", "-N", "one", "-r", "2") == "run job one successfully\n"
    await phase_of(run, "one", "Running")
    pods = run("vcctl", "pod", "list", "-j", "one").splitlines()
    assert [row.split()[1:3] for row in pods[1:]] == [["1/1", "Running"]] * 2
    run("vcctl", "job", "suspend", "-N", "one")
    await phase_of(run, "one", "Aborted")
    run("vcctl", "job", "resume", "-N", "one")
    await phase_of(run, "one", "Running")
    page = run("vcctl", "job", "view", "-N", "one")
    assert "    Phase:\tRunning\n" in page
    assert "\nEvents:\nType " in page
    assert run("vcctl", "job", "delete", "-N", "one") == "delete job one successfully\n"


@pytest.mark.timeout(200)
async def test_slurms_names_submit_stop_resume_and_cancel(run: Vcctl) -> None:
    assert run("vsub", "-n", "two", "-c", "sleep 100") == "run job two successfully\n"
    await phase_of(run, "two", "Running")
    run("vsuspend", "-n", "two")
    await phase_of(run, "two", "Aborted")
    run("vresume", "-n", "two")
    await phase_of(run, "two", "Running")
    assert "two" in run("vjobs")
    assert run("vcancel", "-n", "two") == "cancel job two successfully\n"


@pytest.mark.timeout(200)
async def test_a_queue_is_made_weighed_closed_opened_and_deleted(run: Vcctl) -> None:
    async def in_state(wanted: str) -> None:
        def shown() -> bool | None:
            return f" {wanted} " in run("vcctl", "queue", "get", "-n", "q") or None

        await until(shown, deadline_s=60, describe=f"the queue is {wanted}")

    run("vcctl", "queue", "create", "-n", "q", "-w", "3")
    await in_state("Open")
    run("vcctl", "queue", "operate", "-n", "q", "-a", "update", "-w", "7")
    run("vcctl", "queue", "operate", "-n", "q", "-a", "close")
    await in_state("Closed")
    assert run("vqueues", "-n", "q").splitlines()[1].split()[:3] == ["q", "7", "Closed"]
    run("vcctl", "queue", "operate", "-n", "q", "-a", "open")
    await in_state("Open")
    rows = run("vcctl", "queue", "list").splitlines()
    assert {row.split()[0] for row in rows} >= {"default", "q"}
    run("vcctl", "queue", "operate", "-n", "q", "-a", "close")
    await in_state("Closed")
    run("vcctl", "queue", "delete", "-n", "q")


@pytest.mark.timeout(200)
async def test_a_flow_runs_the_job_of_its_template(run: Vcctl, tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    (tmp_path / "flow.yaml").write_text(FLOW)
    made = run("vcctl", "jobtemplate", "create", "-f", "template.yaml")
    assert made == "Created JobTemplate: default/template\n"
    assert run("vcctl", "jobflow", "create", "-f", "flow.yaml") == "Created JobFlow: default/flow\n"
    await phase_of(run, "flow-template", "Running")
    assert "default" in run("vcctl", "jobtemplate", "get", "-N", "template")
    described = json.loads(run("vcctl", "jobflow", "describe", "-N", "flow", "-o", "json"))
    assert described["spec"]["flows"] == [{"name": "template"}]
    run("vcctl", "jobflow", "delete", "-N", "flow")
    run("vcctl", "jobtemplate", "delete", "-f", "template.yaml")
    assert run("vcctl", "jobtemplate", "list") == "No resources found\n"


def test_the_version_is_that_of_pumice(run: Vcctl) -> None:
    lines = dict(line.split(": ", 1) for line in run("vcctl", "version").splitlines())
    assert lines["API Version"] == "v1alpha1"
    assert lines["Version"].startswith("v")


@pytest.mark.timeout(200)
def test_each_line_of_vcctl_md_does_what_the_page_says(run: Vcctl) -> None:
    lines = [line for block in pages.blocks(PAGE) for line in block.commands]
    said = {line: run(*shlex.split(line)) for line in lines}
    assert "first" in said["vcctl job list"]
    assert "second" in said["vjobs --all-namespaces"]
    assert "research" in said["vcctl queue list"]
