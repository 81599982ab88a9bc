"""The wheels alone are enough: installed into an empty environment, in an empty folder."""

import sys
import zipfile

import pytest

from tools import wheel_check

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return wheel_check.build(tmp_path_factory.mktemp("wheels") / "built")


def test_the_demo_runs_from_the_wheels_alone(wheels, tmp_path):
    said = wheel_check.check(sys.executable, wheels, tmp_path)
    assert "5 of 5 jobs completed" in said


def test_a_subscriber_gets_the_events_and_two_libraries(wheels, tmp_path):
    own = wheel_check.install(sys.executable, "", wheels, tmp_path)
    listed = wheel_check.pip(own, "list", "--format=freeze", cwd=tmp_path)
    assert {line.partition("==")[0] for line in listed.splitlines()} == {
        "msgspec",
        "nats-py",
        "pumice",
        "typing_extensions",
    }
    said = wheel_check.run(own / "pumice", "events", "--help", cwd=tmp_path)
    assert "--follow" in said


def test_the_wheel_says_what_an_index_shows(wheels):
    with zipfile.ZipFile(wheel_check.wheel_of("pumice", wheels)) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
        names = archive.namelist()
    for line in (
        "License-Expression: Apache-2.0",
        "Requires-Python: >=3.11",
        "Provides-Extra: local",
        "Description-Content-Type: text/markdown",
        "Classifier: Typing :: Typed",
        *(f"Classifier: Programming Language :: Python :: {v}" for v in wheel_check.VERSIONS),
    ):
        assert f"{line}\n" in metadata, line
    assert not [each for each in names if each.startswith(("tests/", "tools/", "benchmarks/"))]
