"""What the distribution imports it also asks for: an image has nothing that only tools bring."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OWN = ("pumice", "services", "shared")
LOCAL = ROOT / "pumice" / "local"
"""Needs the extra `local`, and is imported by commands that need it."""


def name_of(text: str) -> str:
    """Return a distribution's name without its version, as an index compares names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", text, maxsplit=1)[0]).lower()


def modules_of(file: Path) -> Iterator[str]:
    """Yield the top modules that a file imports, ours and Python's left out."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        tops = {name.partition(".")[0] for name in names}
        yield from tops - sys.stdlib_module_names - set(OWN)


@pytest.mark.parametrize("package", OWN)
def test_what_a_package_imports_is_declared(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {name_of(text) for text in project["dependencies"]}
    local = needed | {name_of(text) for text in project["optional-dependencies"]["local"]}
    brought_by = packages_distributions()
    undeclared = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for module in sorted(modules_of(file))
        if not {name_of(dist) for dist in brought_by.get(module, ())}
        & (local if LOCAL in file.parents else needed)
    ]
    assert undeclared == []
