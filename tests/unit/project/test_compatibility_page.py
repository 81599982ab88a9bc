"""Every behaviour id that code or tests cite has its line in docs/compatibility.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ID = re.compile(
    r"\b(?:C\d{2}[a-f]?|M0\d|J\d{2}|JP\d|Q0\d|P0\d|G01|F0\d|X0\d|H0\d|S0\d|L01|K\d{2}|SS\d{2}|A\d{2}|T\d{2}"
    r"|D0\d|CA\d{2}|PL\d{2}|DV\d|KY\d|ME\d|W\d{2}|V\d{2}|N0\d|Y0\d|O0\d)\b(?!:\d\d)"
)
LINE = re.compile(r"^\| ([A-Z][\w, ]+) \| (?:same|differs|absent|partly) \|", re.MULTILINE)
"""A row; it may be about several behaviours."""
SOURCES = ("services", "shared", "pumice", "tests", "benchmarks", "tools")


def cited() -> dict[str, set[str]]:
    """Return behaviour id → files that cite it in a comment, docstring or test name."""
    found: dict[str, set[str]] = {}
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file == Path(__file__):
                continue
            for behaviour in ID.findall(file.read_text()):
                found.setdefault(behaviour, set()).add(str(file.relative_to(ROOT)))
    return found


def listed() -> set[str]:
    """Return the ids that the page has a line for."""
    page = (ROOT / "docs/compatibility.md").read_text()
    return {each for ids in LINE.findall(page) for each in ids.split(", ")}


def test_every_cited_behaviour_has_a_line_on_the_compatibility_page():
    missing = {k: sorted(v)[:2] for k, v in cited().items() if k not in listed()}
    assert not missing, missing


def test_the_page_names_only_places_that_exist():
    page = (ROOT / "docs/compatibility.md").read_text()
    named = set(re.findall(r"`((?:services|shared|pumice|tests|k8s|docs)/[\w./-]+)`", page))
    assert named
    gone = sorted(name for name in named if not (ROOT / name).exists())
    assert not gone, gone
