"""The wheel alone is enough: installed into an empty environment, in an empty folder."""

import sys
import zipfile

import pytest

from tools import wheel_check

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return wheel_check.build(tmp_path_factory.mktemp("wheel") / "built")


def test_the_demo_runs_from_the_wheel_alone(wheel, tmp_path):
    said = wheel_check.check(sys.executable, wheel, tmp_path)
    assert "5 of 5 jobs completed" in said


def test_the_wheel_says_what_an_index_shows(wheel):
    with zipfile.ZipFile(wheel) as archive:
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
