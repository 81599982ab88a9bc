"""The suite's second look: what passes only alone is named, a failure with STRICT or in CI."""

import sys
from pathlib import Path

import pytest

from tests.conftest import MARKS
from tools import suite

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "xdist"]
TESTS = Path(__file__).parents[2]
FLAKY = """
from pathlib import Path

def test_passes_the_second_time():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_passes():
    pass
"""


@pytest.fixture
def tests(tmp_path, monkeypatch):
    """A folder with one test that fails the first time."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


@pytest.mark.parametrize("forgiving", [True, False])
def test_a_test_that_passes_only_alone_is_named(tests, forgiving):
    code, said = suite.twice([*PYTEST, str(tests)], forgiving=forgiving)
    assert said == "1 failed, 1 passed, PASSED ONLY ALONE: test_passes_the_second_time"
    assert (code == 0) is forgiving


def test_a_test_that_fails_alone_too_is_a_failure(tests):
    (tests / "test_flaky.py").write_text("def test_fails():\n    assert False\n")
    code, said = suite.twice([*PYTEST, str(tests)], forgiving=True)
    assert (code, said) == (1, "1 failed")


def test_what_is_compiled_is_kept_for_the_next_process(tests, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    suite.once([sys.executable, "-c", "import test_flaky"])
    assert list((tests / "__pycache__").glob("test_flaky.*.pyc"))


def test_the_fast_stage_looks_into_each_folder_that_may_have_fast_tests():
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.rglob("test_*.py")}
    assert {f"tests/{folder}" for folder in folders - MARKS.keys()} == set(suite.SERVERLESS)


@pytest.mark.parametrize(
    ("environ", "strict"),
    [
        ({}, False),
        ({"STRICT": ""}, False),
        ({"STRICT": "false"}, False),
        ({"STRICT": "true"}, True),
        ({"CI": "true"}, True),
        ({"CI": "1", "STRICT": "false"}, True),
        ({"CI": "false"}, False),
    ],
)
def test_who_asks_for_it_and_ci_get_a_strict_suite(environ, strict):
    assert suite.strict(environ) is strict
