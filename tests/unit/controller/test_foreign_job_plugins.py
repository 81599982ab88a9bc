"""Job plugins of other distributions: loaded by entry point, and unable to harm but their jobs."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from services.controller.job import sync
from services.controller.job.podtemplate import PodBuilder
from services.controller.job.validate import problems
from shared.api.batch import Job
from shared.entry_points import BadPlugin
from shared.jobplugins import catalogue
from shared.jobplugins.foreign import PluginFailed, load_plugins
from shared.jobs.defaults import defaulted
from shared.runtime.errors import Rejected
from shared.runtime.jobplugins import load_job_plugins
from tests.support import distributions
from tests.support.structs import job
from tests.unit.controller.world import task

WHOLE = """
class Mine:
    name = "mine"
    def problems(self, job, arguments): return {problems}
    def beside(self, job, arguments): return {beside}
    def edit_pod(self, pod, job, task, index, arguments): {edit}
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example installed."""
    return distributions.installed("job-plugin", tmp_path_factory)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let the catalogue be loaded anew in this test, and forget it after."""
    catalogue.installed.cache_clear()
    yield monkeypatch
    catalogue.installed.cache_clear()


def mine(folder: Path, code: str, *, entry: str = "mine = acme_jobs:Mine") -> Path:
    """Lay out a distribution with a job plugin."""
    sys.modules.pop("acme_jobs", None)
    return distributions.laid_out(
        folder, group="pumice.jobplugins", entry=entry, module="acme_jobs", code=code
    )


def asking(name: str, *arguments: str) -> Job:
    whole = job(task("a", 2), task("b", 1), plugins={name: list(arguments)})
    return defaulted(whole, scheduler_name="volcano")


def test_the_example_makes_its_config_map_and_edits_the_pods(
    example: Path, fresh: pytest.MonkeyPatch
) -> None:
    fresh.syspath_prepend(str(example))
    load_job_plugins()
    asked = asking("roster", "SIZE")
    assert problems(asked) == ()
    (roster,) = sync.companions(asked)
    assert (roster.kind.kind, roster.name) == ("ConfigMap", "train-roster")
    assert roster.body == {"data": {"a": "train-a-0\ntrain-a-1", "b": "train-b-0"}}
    pod = json.loads(PodBuilder(asked, asked.spec.tasks[0]).body(1))
    assert pod["spec"]["containers"][0]["env"] == [{"name": "SIZE", "value": "3"}]
    assert sync.marks(asked) == {"plugin-roster": "roster"}
    assert problems(asking("roster", "A", "B")) == (
        "spec.plugins.roster: takes one argument, the name of a variable",
    )


def test_without_the_distribution_the_plugin_is_unknown(fresh: pytest.MonkeyPatch) -> None:
    (said,) = problems(asking("roster"))
    assert said.startswith("spec.plugins.roster: unable to find job plugin: roster")


@pytest.mark.parametrize(
    ("code", "entry", "says"),
    [
        ("", "mine = acme_jobs:Mine", "cannot be imported: AttributeError"),
        ("class Mine: ...", "mine = acme_jobs:Mine", "a class with a method `edit_pod` is expec"),
        (WHOLE, "svc = acme_jobs:Mine", "the name 'svc' is that of a built-in plugin"),
        (WHOLE, "other = acme_jobs:Mine", "has the name 'mine', its entry point 'other'"),
        (
            f"{WHOLE}    def __init__(self): raise OSError('no licence')",
            "mine = acme_jobs:Mine",
            "cannot be made: OSError: no licence",
        ),
    ],
)
def test_what_cannot_be_loaded_is_told_at_the_start(
    tmp_path: Path, fresh: pytest.MonkeyPatch, code: str, entry: str, says: str
) -> None:
    code = code.format(problems="()", beside="()", edit="pass")
    fresh.syspath_prepend(str(mine(tmp_path, code, entry=entry)))
    with pytest.raises(BadPlugin, match=r"^job plugin of acme 2\.0, entry point"):
        load_plugins(catalogue.PLUGINS)
    with pytest.raises(Rejected) as caught:
        load_job_plugins()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"problems": "1 / 0"}, "ZeroDivisionError: division by zero"),
        ({"problems": "[3]"}, "TypeError: problems returned [3], texts are expected"),
        ({"beside": "[3]"}, "AttributeError"),
        (
            {"beside": "[jobs.Beside(kind='Secret', name='x', body={})]"},
            "a Secret cannot be made, only ConfigMap and Service",
        ),
    ],
)
def test_a_plugin_that_fails_holds_its_job_back_and_says_why(
    tmp_path: Path, fresh: pytest.MonkeyPatch, fault: dict[str, str], says: str
) -> None:
    code = WHOLE.format(**{"problems": "()", "beside": "()", "edit": "pass", **fault})
    fresh.syspath_prepend(str(mine(tmp_path, f"from pumice.plugins import jobs\n{code}")))
    (said,) = problems(asking("mine"))
    assert said.startswith("spec.plugins.mine: job plugin of acme 2.0, entry point mine failed: ")
    assert says in said


def test_a_plugin_that_fails_on_a_pod_is_named(tmp_path: Path, fresh: pytest.MonkeyPatch) -> None:
    code = WHOLE.format(problems="()", beside="()", edit="pod['spec']['no']['such']")
    fresh.syspath_prepend(str(mine(tmp_path, code)))
    asked = asking("mine")
    assert problems(asked) == ()
    with pytest.raises(PluginFailed, match=r"spec\.plugins\.mine: job plugin of acme 2\.0.*'no'"):
        PodBuilder(asked, asked.spec.tasks[0]).body(0)


def test_a_plugin_sees_the_job_and_cannot_change_it(
    tmp_path: Path, fresh: pytest.MonkeyPatch
) -> None:
    edit = "job.labels['x'] = 'y'; pod['metadata']['labels']['size'] = str(len(job.tasks))"
    code = WHOLE.format(problems="()", beside="()", edit=edit)
    fresh.syspath_prepend(str(mine(tmp_path, code)))
    asked = asking("mine")
    before = msgspec.json.encode(asked)
    pod = json.loads(PodBuilder(asked, asked.spec.tasks[0]).body(0))
    assert pod["metadata"]["labels"]["size"] == "2"
    assert msgspec.json.encode(asked) == before
