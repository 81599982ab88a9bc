"""The configuration file: Volcano's form, every mistake named by its place (K01 to K05)."""

import pytest

from services.scheduler.config import FLAG_DEFAULTS, BadConfig
from services.scheduler.decide import configure

CONTRADICTION = """
actions: allocate
tiers:
- plugins: [{name: drf, enableHierarchy: true}, {name: proportion}]
"""
PLAIN = 'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n'


def test_the_compiled_in_default_is_volcanos():
    config = configure()
    assert config.actions == ("enqueue", "allocate", "backfill")
    assert [[plugin.name for plugin in tier.plugins] for tier in config.tiers] == [
        ["priority", "gang", "conformance"],
        ["overcommit", "drf", "predicates", "proportion", "nodeorder"],
    ]
    assert config.warnings == ()


def test_flags_default_to_on_but_for_hierarchy_and_cluster_order():
    flags = configure(PLAIN).tiers[0].plugins[0].flags
    assert flags == FLAG_DEFAULTS
    assert [name for name, on in flags.items() if not on] == [
        "enableHierarchy",
        "enabledClusterOrder",
    ]


def test_flags_and_arguments_are_taken_as_spelled():
    config = configure(
        PLAIN + "    enablePreemptable: false\n    enabledOverused: false\n"
        "  - name: binpack\n    arguments:\n      binpack.weight: 10\n"
    )
    gang, binpack = config.tiers[0].plugins
    assert not gang.flags["enablePreemptable"]
    assert not gang.flags["enabledOverused"]
    assert binpack.arguments == {"binpack.weight": 10}


def test_arguments_of_actions_are_kept_per_action():
    text = PLAIN + "configurations: [{name: allocate, arguments: {cache: no}}]\n"
    assert configure(text).arguments == {"allocate": {"cache": False}}


def test_an_unknown_plugin_is_skipped_with_a_warning():
    config = configure(PLAIN.replace("gang", "gangs"))
    assert config.tiers[0].plugins == ()
    assert (
        "tiers[0].plugins[0].name: there is no plugin 'gangs'; did you mean 'gang'?"
        in (config.warnings[0])
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("actions: [allocate]", "actions: give a comma separated list"),
        (PLAIN.replace("allocate", "alocate"), "no action 'alocate'; did you mean 'allocate'"),
        (PLAIN + "tier: []", "tier: there is no such key; did you mean 'tiers'?"),
        (PLAIN + "    enableJobOder: true", r"tiers\[0\].plugins\[0\].enableJobOder: .*JobOrder"),
        (PLAIN + "    enableJobOrder: 1", r"enableJobOrder: must be true or false, is 1"),
        (PLAIN + "    enabledPreemptable: true", "did you mean 'enablePreemptable'"),
        ("actions: allocate\ntiers: {}", "tiers: must be a list, is dict"),
        ("a: [", "is no YAML"),
        ("[]", "must be a mapping, is list"),
        (PLAIN + "metrics: {type: influx}", "metrics.type: 'influx' is not prometheus"),
        (PLAIN + "metrics: {type: prometheus}", "metrics.address: '' is no http:// or https://"),
        (
            PLAIN + "metrics: {type: prometheus, address: 'http://p', interval: soon}",
            "metrics.interval: 'soon' is no duration above 0 such as 30s",
        ),
        (
            PLAIN + "metrics: {type: prometheus, address: 'http://p', tls.insecureSkipVerify: 1}",
            "metrics.tls.insecureSkipVerify: '1' is neither true nor false",
        ),
        (PLAIN + "configurations: [{arguments: {}}]", r"configurations\[0\].name"),
        (
            PLAIN + "  - name: binpack\n    arguments: {binpack.cpu: lots}",
            r"tiers\[0\], plugin binpack: binpack.cpu: 'lots' is no integer",
        ),
        (
            CONTRADICTION,
            "contradict each other in one tier",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_place(text, complaint):
    with pytest.raises(BadConfig, match=complaint):
        configure(text)
