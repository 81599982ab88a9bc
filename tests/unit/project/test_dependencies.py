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
KNOWN = sys.stdlib_module_names | set(OWN)
LOCAL = ROOT / "pumice" / "local"
"""Needs the extra `local`, and is imported by commands that need it."""


def name_of(text: str) -> str:
    """Return a distribution's name without its version, as an index compares names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", text, maxsplit=1)[0]).lower()


IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)((?:\s*,\s*\w+)*)", re.MULTILINE)


def may_import(file: Path) -> set[str]:
    """Return what a file may import, words of its prose included: cheaper than parsing it."""
    found = IMPORT.findall(file.read_text(encoding="utf-8"))
    return {name for first, others in found for name in re.findall(r"\w+", first + others)}


def modules_of(file: Path) -> Iterator[str]:
    """Yield the top modules that a file imports, ours and Python's left out."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        tops = {name.partition(".")[0] for name in names}
        yield from tops - KNOWN


@pytest.mark.parametrize("package", OWN)
def test_what_a_package_imports_is_declared(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {name_of(text) for text in project["dependencies"]}
    local = needed | {name_of(text) for text in project["optional-dependencies"]["local"]}
    brought_by = packages_distributions()

    def declared(module: str, file: Path) -> bool:
        brought = {name_of(dist) for dist in brought_by.get(module, ())}
        return bool(brought & (local if LOCAL in file.parents else needed))

    undeclared = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in sorted((ROOT / package).rglob("*.py"))
        if not all(declared(module, file) for module in may_import(file) - KNOWN)
        for module in sorted(modules_of(file))
        if not declared(module, file)
    ]
    assert undeclared == []
