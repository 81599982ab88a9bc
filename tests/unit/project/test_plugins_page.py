"""docs/plugins.md tells of every extension point and of everything that a cluster answers."""

import re
import runpy
from pathlib import Path

import yaml

from pumice import plugins
from pumice.plugins import Cluster
from pumice.plugins.points import POINTS
from pumice.testing import Cluster as World
from pumice.testing import binds_of
from services.scheduler.config import FLAG_DEFAULTS
from services.scheduler.decide import configure
from services.scheduler.foreign import ForeignPlugin
from services.scheduler.policy.catalog import PLUGINS
from tools.write_tables import with_points

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "plugins.md").read_text()


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_the_table_of_extension_points_is_that_of_the_code():
    assert with_points(PAGE) == PAGE
    assert all(point.flag in {*FLAG_DEFAULTS, ""} for point in POINTS.values())


def test_what_a_cluster_answers_is_listed():
    (sentence,) = re.findall(r"^`cluster` answers (.*?)\.\sAll", PAGE, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`(\w+)", sentence)) == public(Cluster)


def test_the_code_on_the_page_is_that_of_the_example():
    (shown,) = re.findall(r"        def may_enter.*?hooks.job_enqueueable", PAGE, re.DOTALL)
    assert shown in (ROOT / "examples" / "scheduler-plugin" / "running_limit.py").read_text()


def test_the_test_on_the_page_passes():
    (code,) = re.findall(r"```python\n(from pumice.testing .*?)```", PAGE, re.DOTALL)
    assert "    assert " in code
    example = runpy.run_path(str(ROOT / "examples" / "scheduler-plugin" / "running_limit.py"))
    names = {"RunningLimit": example["RunningLimit"]}
    exec(code, names)  # the page is ours
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()


def test_the_configuration_on_the_page_is_one():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    example = ForeignPlugin(dict, name="running-limit", origin="the page", note=print)
    config = configure(text, plugins={**PLUGINS, "running-limit": example})
    assert config.warnings == ()
    assert yaml.safe_load(text)["tiers"]


def test_the_trait_and_the_score_on_the_page_place_pods_as_it_says():
    (code,) = re.findall(r"```python\n(hooks.trait.*?)```", PAGE, re.DOTALL)

    class OfThePage:
        name = "of-the-page"

        def __init__(self, arguments):
            pass

        def contribute(self, hooks, cluster):
            names = {name: getattr(plugins, name) for name in plugins.__all__}
            exec(code, {**names, "hooks": hooks, "cluster": cluster})

    conf = "actions: allocate\ntiers: [{plugins: [{name: gang}, {name: of-the-page}]}]"
    world = World(conf, plugins=[OfThePage]).node("a", cpu="8").node("b", cpu="8")
    world.group("g", min_member=4)
    for index in range(4):
        world.pod(f"g-{index}", "g", cpu="1")
    assert binds_of(world.decide()) == {"g-0": "a", "g-1": "b", "g-2": "a", "g-3": "b"}
