"""Sentences of pages and code name their subject: a job, a node, a service, a reader."""

import re
from pathlib import Path

import pytest

from tests.unit.project.test_tidy import ROOT, tracked

CODE = ("pumice/*.py", "services", "shared", "tools", "benchmarks", "examples", "tests/support")
PLACES = ("*.md", "Makefile", "Dockerfile", "docker-compose.yml", "k8s", "docs", *CODE)
VAGUE = re.compile(
    r"\b(?:some|no|any|every)body\b|\b(?:some|any|every)one\b|\bwhoever\b|\bwhom\b", re.IGNORECASE
)
RIDDLE = re.compile(
    r'"""(?:What|Who|Whom|Whose)\b|\bSee the module\b|"""Return who\b|(?<=[.:;] )[Ww]ho\b[^?\n]*$',
    re.MULTILINE,
)


def prose(place: str) -> list[Path]:
    return [
        file for file in tracked(place) if file.suffix not in {".json", ".sum", ".lock", ".png"}
    ]


@pytest.mark.parametrize("place", PLACES)
def test_sentences_have_subjects_that_exist(place: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in prose(place)
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1)
        if VAGUE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("place", CODE)
def test_a_docstring_begins_with_the_thing_that_it_describes(place: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}: {riddle}"
        for file in prose(place)
        for riddle in RIDDLE.findall(file.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("line", ["Nobody reads it.", "told by whoever asks", "for everybody"])
def test_the_search_finds_such_sentences(line: str) -> None:
    assert VAGUE.search(line)


@pytest.mark.parametrize(
    "text",
    [
        '"""What it counts."""',
        '"""Return who may write."""',
        "    See the module.",
        "So: who asks learns it.",
    ],
)
def test_the_search_finds_such_docstrings(text: str) -> None:
    assert RIDDLE.search(text)
