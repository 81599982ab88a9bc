"""docs/plugins.md tells of every extension point and of everything that a cluster answers."""

import re
from pathlib import Path

import yaml

from pumice.plugins import Cluster, Hooks
from services.scheduler.decide import configure
from services.scheduler.foreign import ForeignPlugin
from services.scheduler.foreign.guard import GuardedHooks
from services.scheduler.policy.catalog import PLUGINS

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_extension_point_has_its_line():
    listed = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*)\|", PAGE, re.MULTILINE))))
    assert listed == public(Hooks) - {"enabled"}


def test_every_extension_point_is_guarded():
    assert public(GuardedHooks) - {"hand_over"} == public(Hooks)


def test_what_a_cluster_answers_is_listed():
    (sentence,) = re.findall(r"^`cluster` answers (.*?)\. What", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)", sentence)) == public(Cluster)


def test_the_configuration_on_the_page_is_one():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    example = ForeignPlugin(dict, name="keep-gpus-free", origin="the page", note=print)
    config = configure(text, plugins={**PLUGINS, "keep-gpus-free": example})
    assert config.warnings == ()
    assert yaml.safe_load(text)["tiers"]
