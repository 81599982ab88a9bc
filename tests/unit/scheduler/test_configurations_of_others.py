"""Configuration files as installations of Volcano have them: they run here, or say what to do.

Volcano runs with plugins, arguments and `configurations` that it does not know. So does Pumice,
which names each of them and the right word that is most like it.
"""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.config import DEFAULT_TEXT, BadConfig
from services.scheduler.decide import configure
from services.scheduler.policy.arguments import HARMLESS
from services.scheduler.policy.catalog import PLUGINS


class Asked(dict[str, Any]):
    """Arguments that remember which of them a plugin asks for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked.add(key)
        return super().get(key, default)


def arguments_of(plugin: str) -> set[str]:
    """Return the arguments that a plugin reads of itself."""
    asked = Asked(**NEEDED.get(plugin, {}))
    PLUGINS[plugin](asked)
    return asked.keys_asked


NEEDED = {"extender": {"extender.urlPrefix": "http://127.0.0.1:1"}}


def text_of(*plugins: dict[str, Any], **more: Any) -> str:
    return yaml.safe_dump({"actions": "allocate", "tiers": [{"plugins": list(plugins)}], **more})


def with_arguments(plugin: str, **arguments: Any) -> str:
    entry = {"name": plugin, "arguments": {**NEEDED.get(plugin, {}), **arguments}}
    return text_of(entry)


def refused(text: str) -> str:
    with pytest.raises(BadConfig) as refusal:
        configure(text)
    return str(refusal.value)


def test_the_argument_of_a_plugin_beside_arguments_is_told_where_it_belongs() -> None:
    said = refused(
        "actions: enqueue\n"
        "tiers:\n"
        "- plugins:\n"
        "  - name: gang\n"
        "  - name: overcommit\n"
        "    arguments:\n"
        "    overcommit-factor: 3.0\n"
    )
    assert "tiers[0].plugins[1].overcommit-factor: " in said
    assert "indent it below `arguments:`" in said


def test_plugins_of_a_vendor_are_skipped_and_named() -> None:
    config = configure(text_of({"name": "gang"}, {"name": "cce-gpu"}, {"name": "npu_v26.so"}))
    assert [option.name for option in config.tiers[0].plugins] == ["gang"]
    assert [("'cce-gpu'" in text, "'npu_v26.so'" in text) for text in config.warnings] == [
        (True, False),
        (False, True),
    ]


def test_init_params_of_a_vendors_plugin_are_harmless() -> None:
    entry = {"name": "init-params", "arguments": {"grace-over-time": "900", "useClusterInfo": "x"}}
    config = configure(text_of({"name": "gang"}, configurations=[entry]))
    assert config.warnings == ()
    assert config.arguments == {}


def test_arguments_for_an_action_that_is_none_have_no_effect_and_are_named() -> None:
    config = configure(text_of({"name": "gang"}, configurations=[{"name": "enqeue"}]))
    (warning,) = config.warnings
    assert "configurations[0].name" in warning
    assert "did you mean 'enqueue'?" in warning


@pytest.mark.parametrize("action", ["elect", "reserve"])
def test_an_action_that_volcano_gave_up_is_refused_with_what_to_do(action: str) -> None:
    said = refused(f"actions: 'enqueue, {action}, allocate'\n")
    assert f"no action '{action}'" in said
    assert "remove it" in said


def test_commas_spaces_and_quoted_numbers_are_read_as_volcano_reads_them() -> None:
    weights = {"nodeaffinity.weight": "5", "podaffinity.weight": 4, "leastrequested.weight": 2.0}
    config = configure(
        yaml.safe_dump(
            {
                "actions": " enqueue,allocate , backfill,",
                "tiers": [{"plugins": [{"name": "nodeorder", "arguments": weights}]}],
            }
        )
    )
    assert config.actions == ("enqueue", "allocate", "backfill")
    assert config.warnings == ()


@pytest.mark.parametrize("value", [1.5, "1.0e", "many", "2.5"])
def test_a_weight_that_is_no_whole_number_is_refused(value: object) -> None:
    said = refused(with_arguments("nodeorder", **{"leastrequested.weight": value}))
    assert "plugin nodeorder: leastrequested.weight" in said


def test_arguments_of_old_guides_have_no_effect_and_are_named() -> None:
    old = {"predicate.GPUSharingEnable": True, "predicate.resources.example.com/gpu.cpu": 4}
    config = configure(with_arguments("predicates", **old, **{"predicate.CacheEnable": True}))
    assert [next(key for key in old if repr(key) in text) for text in config.warnings] == [*old]


def test_a_whole_configmap_is_told_where_the_configuration_stands_in_it() -> None:
    whole = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"my.conf": DEFAULT_TEXT}}
    said = refused(yaml.safe_dump(whole))
    assert "a whole ConfigMap" in said
    assert "data.my.conf" in said
    assert "a whole ConfigMap" in refused("kind: ConfigMap\ndata:\n")


def test_a_tab_is_named_with_its_line() -> None:
    said = refused("actions: allocate\ntiers:\n- plugins:\n\t- name: gang\n")
    assert "line 4" in said
    assert "spaces" in said


def test_two_plugins_that_share_among_queues_are_warned_of() -> None:
    config = configure(text_of({"name": "capacity"}, {"name": "proportion"}))
    (warning,) = config.warnings
    assert "proportion and capacity" in warning


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "null"])
def test_an_empty_file_is_said_to_be_empty(text: str) -> None:
    assert refused(text).startswith("the scheduler configuration is empty")


@pytest.mark.parametrize("plugin", sorted(PLUGINS))
def test_no_argument_that_a_plugin_reads_is_taken_for_a_misspelt_one(plugin: str) -> None:
    own = dict.fromkeys(arguments_of(plugin) - NEEDED.get(plugin, {}).keys())
    assert configure(with_arguments(plugin, **own)).warnings == ()
    known = dict.fromkeys(HARMLESS.get(plugin, ()))
    assert configure(with_arguments(plugin, **known)).warnings == ()


READ = [(plugin, key) for plugin in sorted(PLUGINS) for key in sorted(arguments_of(plugin))]


@given(st.sampled_from(READ), st.data())
def test_an_argument_with_two_letters_swapped_is_named_with_the_right_one(
    read: tuple[str, str], data: st.DataObject
) -> None:
    plugin, right = read
    places = [at for at in range(len(right) - 1) if right[at] != right[at + 1]]
    at = data.draw(st.sampled_from(places))
    wrong = right[:at] + right[at + 1] + right[at] + right[at + 2 :]
    (warning,) = configure(with_arguments(plugin, **{wrong: "1"})).warnings
    assert f"plugin {plugin}: there is no argument {wrong!r}" in warning
    assert f"did you mean {right!r}?" in warning


def test_a_section_is_read_to_its_end_and_one_that_is_switched_off_is_not() -> None:
    wrong = {"thresholds": {"cpu": 70, "mem": 70, "memmory": 3}}
    (warning,) = configure(with_arguments("usage", **wrong)).warnings
    assert "'thresholds.memmory'" in warning
    off = {"sra": {"enable": False, "weight": 3, "resources": "example.com/gpu"}}
    assert configure(with_arguments("resource-strategy-fit", **off)).warnings == ()


def test_arguments_of_actions_are_compared_alike() -> None:
    entry = {"name": "enqueue", "arguments": {"inqueueTimout": "5m"}}
    (warning,) = configure(text_of({"name": "gang"}, configurations=[entry])).warnings
    assert "action enqueue: there is no argument 'inqueueTimout'" in warning
    assert "did you mean 'inqueueTimeout'?" in warning
    no_effect = {"name": "preempt", "arguments": {"predicateErrorCacheEnable": False}}
    assert configure(text_of({"name": "gang"}, configurations=[no_effect])).warnings == ()
