"""Sentences of pages and code name their subject: a job, a node, a service, a reader."""

import re
from pathlib import Path

import pytest

from tests.unit.project.test_tidy import ROOT, tracked

PLACES = (
    *("*.md", "Makefile", "Dockerfile", "docker-compose.yml", "k8s", "examples", "docs"),
    *("pumice/*.py", "services", "shared", "tools", "benchmarks"),
)
VAGUE = re.compile(r"\b(?:some|no|any|every)body\b|\bwhoever\b|\bwhom\b", re.IGNORECASE)
RIDDLE = re.compile(r'"""(?:What|Who|Whom|Whose)\b|\bSee the module\b')


def prose(place: str) -> list[Path]:
    return [file for file in tracked(place) if file.suffix not in {".json", ".sum", ".lock"}]


@pytest.mark.parametrize("place", PLACES)
def test_sentences_have_subjects_that_exist(place: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in prose(place)
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1)
        if VAGUE.search(line)
    ]
    assert found == []


def test_a_docstring_of_the_public_package_says_what_the_thing_is() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {riddle}"
        for file in prose("pumice/*.py")
        for riddle in RIDDLE.findall(file.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("line", ["Nobody reads it.", "told by whoever asks", "for everybody"])
def test_the_search_finds_such_sentences(line: str) -> None:
    assert VAGUE.search(line)
