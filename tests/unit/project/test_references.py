"""What prose points to is there: paths in backticks, links between pages, records of decisions."""

import re
from pathlib import Path

import pytest

from tests.unit.project.test_tidy import ROOT, tracked

FOLDERS = "services|shared|pumice|tests|docs|tools|benchmarks|examples|k8s"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")
DECISION = re.compile(r"\bADR (\d+)\b")


PAGES = tracked("*.md")
PROSE = [*PAGES, *tracked("*.py")]


def told(pattern: re.Pattern[str], file: Path) -> list[str]:
    return pattern.findall(file.read_text("utf-8"))


def test_every_path_in_backticks_is_there() -> None:
    missing = [
        f"{file.relative_to(ROOT)}: {path}"
        for file in PROSE
        for path in told(PATH, file)
        if not ((ROOT / path).exists() or (ROOT / f"{path}.py").exists())
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    missing = [link for link in told(LINK, page) if not (page.parent / link).exists()]
    assert missing == []


def test_every_decision_that_is_named_has_its_page() -> None:
    known = {int(page.name.partition("-")[0]) for page in (ROOT / "docs" / "adr").glob("*.md")}
    named = {int(number) for file in PROSE for number in told(DECISION, file)}
    assert named <= known
