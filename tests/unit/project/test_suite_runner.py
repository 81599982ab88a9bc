"""The suite's second look: what passes only alone is named, a failure with STRICT or in CI.

And its order: what runs beside what, and which folders a stage reads.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import MARKS, folder_of
from tools import suite

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "xdist"]
TESTS = Path(__file__).parents[2]
MARKED_AS_LAWS = re.compile(r"^(pytestmark = |@)pytest\.mark\.laws", re.MULTILINE)
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


@pytest.mark.parametrize("code", [0, 1])
def test_a_program_is_built_before_the_tests_that_take_it(monkeypatch, code):
    ran: list[list[str]] = []

    def tee(command, *_, **__):
        ran.append(command[1:])
        return code, "1 passed"

    monkeypatch.setattr(suite, "tee", tee)
    result = suite.run("kubectl")
    assert ran[0] == ["-m", "tests.support.goprograms", "kubectl"]
    assert len(ran) == (1 if code else 2)
    assert (result.ok, result.words) == (
        (False, "kubectl not built") if code else (True, "1 passed")
    )


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


def folders_read(stage: str) -> list[Path]:
    """Return the folders that a stage reads."""
    words = (word for command in suite.STAGES[stage] for word in command)
    return [TESTS.parent / word for word in words if word.startswith("tests")]


def stage_of(file: Path) -> str:
    """Return the stage that runs the tests of a file, by its marks."""
    if MARKED_AS_LAWS.search(file.read_text("utf-8")):
        return "laws"
    marks = MARKS.get(folder_of(file), ["fast"])
    return {"nats": "contract", "kube": "integration"}.get(marks[-1], marks[-1])


@pytest.mark.parametrize("stage", ["fast", "laws", "contract", "integration", "restart", "web"])
def test_a_stage_reads_each_file_whose_tests_are_its_own(stage):
    files = [file for file in TESTS.rglob("test_*.py") if stage_of(file) == stage]
    read = folders_read(stage)
    assert files
    assert [file for file in files if not any(map(file.is_relative_to, read))] == []


def test_what_waits_for_nothing_runs_beside_what_waits_for_servers():
    first, beside = suite.lanes([name for name in suite.STAGES if name not in suite.APART])
    assert (first, beside) == (["fast", "contract", "integration", "restart"], ["lint", "laws"])
    assert suite.lanes(["lint", "laws"]) == (["lint", "laws"], [])


MEETING = """
import sys, time
from pathlib import Path

mine, other = Path(sys.argv[1]), Path(sys.argv[2])
mine.touch()
deadline = time.monotonic() + 30
while not other.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
print("met" if other.exists() else "alone")
sys.exit(not other.exists())
"""


def test_a_stage_beside_another_runs_at_the_same_time_and_its_output_comes_in_one_piece(
    tmp_path, monkeypatch, capsys
):
    def meets(mine: str, other: str) -> list[list[str]]:
        return [[sys.executable, "-c", MEETING, str(tmp_path / mine), str(tmp_path / other)]]

    monkeypatch.setattr(suite, "STAGES", {"lint": meets("a", "b"), "fast": meets("b", "a")})
    assert suite.main(["lint", "fast"]) == 0
    shown = capsys.readouterr().out
    assert "── lint, which ran beside the others\nmet\n" in shown
    assert shown.splitlines()[-1].startswith("all passed")
    assert shown.index("lint (") < shown.index("fast (")


def test_a_stage_beside_others_that_fails_fails_the_suite(monkeypatch, capsys):
    fails, passes = ([[sys.executable, "-c", f"raise SystemExit({code})"]] for code in (1, 0))
    monkeypatch.setattr(suite, "STAGES", {"lint": fails, "fast": passes})
    assert suite.main(["lint", "fast"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAILED in")
