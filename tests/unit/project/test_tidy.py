"""What linters cannot check: file length, marks left for later, words that do not belong here."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
MAX_LINES = 450
DOCSTRING = re.compile(r'(?:#.*\n|\n)*[rR]?"""\s*[^\s"]')
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


def faults_of(text: str) -> list[str]:
    """Return what a reader of a module misses; all files are read in one test, which is cheap."""
    checks = {
        "no module docstring": not DOCSTRING.match(text),
        f"longer than {MAX_LINES} lines": len(text.splitlines()) > MAX_LINES,
        "a mark left for later": MARKS.search(text),
    }
    return [fault for fault, found in checks.items() if found]


def test_a_module_says_what_it_is_for_and_stays_readable():
    found = {
        str(f.relative_to(ROOT)): faults for f in PYTHON if (faults := faults_of(f.read_text()))
    }
    assert found == {}


def test_the_search_for_faults_finds_them():
    assert faults_of('#!/bin/sh\n"""What it is for."""\n') == []
    assert faults_of("import re\n") == ["no module docstring"]
    assert faults_of('"""Doc."""\n' + "x = 1\n" * MAX_LINES) == [f"longer than {MAX_LINES} lines"]
    assert faults_of('"""Doc."""\n# TO' + "DO: more\n") == ["a mark left for later"]


def test_no_file_names_an_index_or_a_path_of_one_machine():
    found = []
    for file in tracked():
        if file.suffix in {".png", ".svg", ".sum"} or file == Path(__file__):
            continue
        text = file.read_text(errors="replace")
        if not FORBIDDEN.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if FORBIDDEN.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found, found
