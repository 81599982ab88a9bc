"""Volcano's flags that mean nothing here are accepted and named."""

from shared.runtime.common import InheritedSettings, inert_flags
from shared.runtime.settings import load


def given(*argv: str) -> InheritedSettings:
    return load(InheritedSettings, service="test", argv=argv, environ={})


def test_a_flag_that_was_given_is_named_with_the_reason():
    idle = inert_flags(given("--lock-object-namespace=x", "--feature-gates=ResourceTopology=true"))
    assert set(idle) == {"--lock-object-namespace", "--feature-gates"}
    assert "the cache holds the Leases" in idle["--lock-object-namespace"]


def test_defaults_and_flags_with_effect_are_not_named():
    assert inert_flags(given("--log-level=debug", "--leader-elect=true")) == {}


def test_the_command_line_of_volcanos_own_manifests_is_taken():
    idle = inert_flags(given("--logtostderr", "-v=3", "--leader-elect=false"))
    assert set(idle) == {"--v"}
    assert given("-v", "4").v == 4
