"""The recipes of CONTRIBUTING.md: their files, names and commands are there, their examples run.

The example of a controller is run by `tests/unit/controller/test_table.py`.
"""

import json
import re
from typing import Any

import pytest

from pumice.events import decode, encode
from pumice.testing import Cluster, binds_of
from services.scheduler.policy.catalog import ACTIONS, PLUGINS
from tests.support.manifests import ROOT
from tests.support.structs import job
from tests.unit.controller.world import task
from tests.unit.project.test_tidy import tracked
from tools.wheel_check import ROOT as CHECKOUT

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
RECIPES = dict(
    re.findall(
        r"^### ([^\n]+)\n(.*?)(?=^##)", PAGE[PAGE.index("## Recipes") :], re.MULTILINE | re.DOTALL
    )
)
FOLDERS = "services|shared|pumice|tests|docs|tools|k8s"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./<>*-]+)`")
DEFINED = re.compile(rf"`(\w+)` in `((?:{FOLDERS})/[\w./-]+\.py)`")
IN_THE_SAME_FILE = re.compile(
    rf"`\w+` in `((?:{FOLDERS})/[\w./-]+\.py)`[^`]*?`(\w+)` (?:in|of) the same file"
)
CASES = "\n".join(path.read_text("utf-8") for path in tracked("tests/conformance/cases/*.json"))
UNITS = "\n".join(path.read_text("utf-8") for path in tracked("tests/unit/scheduler/*.py"))


def example(recipe: str) -> dict[str, Any]:
    """Run the Python of a recipe; returns its names."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", RECIPES[recipe], re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(code, names)  # the page is ours
    return names


def test_there_is_a_recipe_for_each_kind_of_change() -> None:
    assert list(RECIPES) == [
        "A field of a CRD",
        "A plugin argument",
        "A plugin",
        "An action",
        "A controller",
        "A job plugin",
        "An event type",
        "A metric",
    ]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_files_of_a_recipe_are_there(recipe: str) -> None:
    paths = PATH.findall(RECIPES[recipe])
    missing = [path for path in paths if not any(ROOT.glob(re.sub(r"<\w+>", "*", path)))]
    assert paths
    assert missing == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_names_of_a_recipe_are_in_their_files(recipe: str) -> None:
    text = RECIPES[recipe]
    named = DEFINED.findall(text) + [(name, path) for path, name in IN_THE_SAME_FILE.findall(text)]
    for name, path in named:
        defined = re.compile(rf"^(?:class|def|async def) {name}\b|^{name}\b.*=", re.MULTILINE)
        assert defined.search((ROOT / path).read_text("utf-8")), f"{name} in {path}"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_commands_of_a_recipe_are_there(recipe: str) -> None:
    makefile = (CHECKOUT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`make ([\w-]+)`", RECIPES[recipe]):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for module in re.findall(r"`python -m ([\w.]+)", RECIPES[recipe]):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


@pytest.mark.parametrize("name", [*ACTIONS, *PLUGINS])
def test_each_action_and_plugin_has_a_case_or_a_test(name: str) -> None:
    word = re.compile(rf"(?:name\"?: \"?|\"){name}\b|actions: [\"a-z, ]*\b{name}\b")
    assert word.search(CASES) or word.search(UNITS)


def test_the_plugin_prefers_nodes_with_more_cpu() -> None:
    conf = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: tall, arguments: {tall.weight: WEIGHT}}]
"""
    for weight, node in (("1", "large"), ("-1", "small")):
        cluster = Cluster(conf.replace("WEIGHT", weight), plugins=[example("A plugin")["Tall"]])
        cluster.node("large", cpu="8").node("small", cpu="4").gang("a", tasks=1, cpu="1")
        assert binds_of(cluster.step()) == {"a-0": node}


def test_the_job_plugin_tells_how_many_pods_a_task_has() -> None:
    plugin = example("A job plugin")["Sizes"]()
    of = job(task("worker", 3), plugins={"sizes": ["--variable=HOW_MANY"]})
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "c"}]}}
    assert list(plugin.problems(of, of.spec.plugins["sizes"])) == []
    plugin.edit_task(pod, of, of.spec.tasks[0], of.spec.plugins["sizes"])
    assert pod["spec"]["containers"][0]["env"] == [{"name": "HOW_MANY", "value": "3"}]


def test_the_event_is_one() -> None:
    event = example("An event type")["NodeDrained"](node="n1", pods=3)
    wire = encode(event, id="1", time=1.0, source="/pumice/local/scheduler")
    assert json.loads(wire)["data"] == {"node": "n1", "pods": 3}
    assert decode(wire).subject == "n1"
