"""No circles of modules: every import counts, also for types only and inside functions."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.unit.project.test_tidy import PYTHON, ROOT

PACKAGES = ("pumice", "services", "shared")


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name in it) of all imports of a module's source; relative ones are refused."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield from ((node.module, alias.name) for alias in node.names)


def graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module imports, among these modules."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = {m if f"{m}.{n}" not in sources else f"{m}.{n}" for m, n in imported(source)}
        found[module] = names & sources.keys() - {module}
    return found


def circle(sources: Mapping[str, str]) -> list[str]:
    """Return a circle of imports, from a module back to itself; empty if there is none."""
    try:
        TopologicalSorter(graph(sources)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others():
    sources = {
        name_of(file): file.read_text("utf-8")
        for file in PYTHON
        if file.relative_to(ROOT).parts[0] in PACKAGES
    }
    assert len(sources) > 100
    assert circle(sources) == []


@pytest.mark.parametrize(
    "back",
    [
        "from a import one",
        "import a.one",
        "from a.one import THING",
        "if TYPE_CHECKING:\n    from a.one import Thing",
        "def late():\n    from a.one import thing",
    ],
)
def test_the_search_finds_circles(back: str):
    sources = {"a": "", "a.one": "from a import two", "a.two": back}
    assert set(circle(sources)) == {"a.one", "a.two"}


def test_the_search_finds_no_circle_where_there_is_none():
    assert circle({"a": "", "a.one": "from a import two\nimport os", "a.two": "import a"}) == []
