"""Names in prose are there: paths, modules and members, links, records of decisions."""

import builtins
import re
from pathlib import Path

import pytest

from tests.unit.project.test_tidy import ROOT, tracked

FOLDERS = "services|shared|pumice|tests|docs|tools|benchmarks|examples|k8s"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")
DECISION = re.compile(r"\bADR (\d+)\b")
MODULE = re.compile(r"`((?:services|shared|pumice|tests|tools|benchmarks)(?:\.\w+)+)(?:\(\))?`")
MEMBER = re.compile(r"`([A-Z][A-Za-z]+\.[a-z_]\w*)(?:\(\))?`")
DEFINED = re.compile(r"^class (\w+)", re.MULTILINE)
RAISED = re.compile(r"\b[Rr]aises? ((?:`?[A-Z]\w+`?(?:,\s+|\s+(?:and|or)\s+)?)+)")
ERROR = re.compile(r"[A-Z]\w+")
OF_LIBRARIES = {"CalledProcessError", "CancelledError", "DecodeError", "Error", "ValidationError"}
NO_MODULES = {
    "pumice.jobplugins": "a group of entry points",
    "pumice.services": "a folder that ADR 21 decided against",
    "pumice.cause": "an attribute of spans",
    "pumice.gate": "an attribute of spans",
    "pumice.reason": "an attribute of spans",
}


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


def test_every_decision_has_one_number_and_begins_with_it() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(page.name.partition("-")[0]) for page in pages]
    assert numbers == sorted(set(numbers))
    titles = [page.read_text("utf-8").partition(".")[0] for page in pages]
    assert titles == [f"# {number}" for number in numbers]


def defines(text: str, name: str) -> bool:
    statement = rf'(?:def|class|import.*) {name}\b|^ *"?{name}"?(?:[:,]| =)'
    found = re.search(statement, text, re.MULTILINE)
    return found is not None


def resolves(name: str) -> bool:
    """Tell whether a dotted name is a module, or something that a module defines or imports."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return length == len(parts) or defines(file.read_text("utf-8"), parts[length])
    return ROOT.joinpath(*parts).is_dir()


def test_every_module_in_backticks_is_there() -> None:
    named = {(file, name) for file in PROSE for name in told(MODULE, file)}
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file, name in sorted(named)
        if name not in NO_MODULES and not resolves(name)
    ]
    assert missing == []


def test_every_member_of_a_class_in_backticks_is_there() -> None:
    # The methods of Hooks are rows of tables.
    points = [file.read_text("utf-8") for file in tracked("pumice/plugins/*points.py")]
    words = {"Hooks": set(re.findall(r"\w+", "".join(points)))}
    for file in tracked("*.py"):
        text = file.read_text("utf-8")
        for name in DEFINED.findall(text):
            words.setdefault(name, set()).update(re.findall(r"\w+", text))
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in PROSE
        for name in told(MEMBER, file)
        for owner, _, member in [name.partition(".")]
        if owner in words and member not in words[owner]
    ]
    assert missing == []


def test_every_error_that_a_docstring_names_is_there() -> None:
    # A renamed class leaves its old name in `Raises …`, which no type checker reads.
    sources = [file for file in tracked("*.py") if file.parts[len(ROOT.parts)] != "tests"]
    texts = {file: file.read_text("utf-8") for file in sources}
    defined = {name for text in texts.values() for name in DEFINED.findall(text)}
    defined |= OF_LIBRARIES | set(vars(builtins))
    missing = [
        f"{file.relative_to(ROOT)}: {error}"
        for file, text in texts.items()
        for errors in RAISED.findall(text)
        for error in ERROR.findall(errors)
        if error not in defined
    ]
    assert missing == []


def test_no_docstring_names_an_error_by_the_end_of_its_name() -> None:
    # `Raises Broken` where the module raises StreamBroken, and another package has a Broken.
    stale = []
    for file in tracked("*.py"):
        code = re.sub(r'""".*?"""', "", file.read_text("utf-8"), flags=re.DOTALL)
        named = {error for errors in told(RAISED, file) for error in ERROR.findall(errors)}
        stale += [
            f"{file.relative_to(ROOT)}: {error}"
            for error in sorted(named)
            if not re.search(rf"\b{error}\b", code) and re.search(rf"\braise \w+{error}\b", code)
        ]
    assert stale == []


def test_the_search_for_modules_finds_what_is_missing() -> None:
    assert resolves("shared.api.cron.CronJob")
    assert not resolves("shared.api.crontab")
    assert not resolves("shared.api.cron.Crontab")
