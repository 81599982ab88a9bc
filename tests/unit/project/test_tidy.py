"""What linters cannot check: file length, marks left for later, words that do not belong here."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAX_LINES = 450
MARKS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
FORBIDDEN = re.compile(
    r"index-url|pypi\.org|files\.pythonhosted\.org|proxy\.golang\.org|/root/(?!\.ssh\b)|/work/",
    re.IGNORECASE,
)
"""Job plugin ssh mounts at /root/.ssh of a container, as Volcano does (JP3)."""


def tracked(pattern: str = "") -> list[Path]:
    """Return the files that belong to the project: what git tracks, else what lies here."""
    listed = subprocess.run(
        ["git", "ls-files", "--", pattern or "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]
    skip = {".venv", ".git", "build", "__pycache__"}
    return [f for f in ROOT.rglob(pattern or "*") if f.is_file() and not skip & set(f.parts)]


PYTHON = [f for f in tracked("*.py") if "gomods" not in f.parts]


@pytest.mark.parametrize("file", PYTHON, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_module_says_what_it_is_for_and_stays_readable(file):
    text = file.read_text()
    assert ast.get_docstring(ast.parse(text)), "no module docstring"
    assert len(text.splitlines()) <= MAX_LINES, "longer than a reader likes"
    assert not MARKS.search(text), "a mark left for later"


def test_no_file_names_an_index_or_a_path_of_one_machine():
    found = []
    for file in tracked():
        if file.suffix in {".png", ".svg", ".sum"} or file == Path(__file__):
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if FORBIDDEN.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found, found
