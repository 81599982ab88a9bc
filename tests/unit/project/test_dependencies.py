"""What the distribution imports it also asks for: an image has nothing that only tools bring."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
OWN = ("pumice", "services", "shared")
KNOWN = sys.stdlib_module_names | set(OWN)
Project = dict[str, Any]


def project_of(folder: Path) -> Project:
    project: Project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return project


PUMICE = project_of(ROOT)
SERVICES = project_of(ROOT / "distributions" / "services")


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


def names(asked: list[str]) -> set[str]:
    return {name_of(text) for text in asked}


def brought(*extras: str) -> set[str]:
    """Return the distributions that `pumice` with these extras asks for."""
    asked = list(PUMICE["dependencies"])
    for extra in extras:
        asked += PUMICE["optional-dependencies"][extra]
    with_services = "pumice-services" in names(asked)
    return names(asked) | (names(SERVICES["dependencies"]) if with_services else set())


EXTRAS = {
    "pumice/events/webhook.py": ("webhook",),
    "pumice/events": (),
    "pumice/directory.py": (),
    "pumice/cli/events.py": (),
    "pumice/cli/main.py": (),
    "pumice/plugins/jobs.py": (),
    "pumice/plugins/status.py": (),
    "pumice/plugins": ("plugins",),
    "pumice/embedded": ("services", "local"),
    "pumice/local": ("services", "local"),
    "pumice/queries/reports.py": ("services", "parquet"),
    "pumice": ("services",),
}
"""File or folder of `pumice` → the extras that it may need; the first line that fits holds."""
EXTRAS_OF_SERVICES = {"shared/runtime/otlp.py": "telemetry", "services/accounting": "accounting"}
"""File or folder → the extra of the services that it needs."""


def needed_by(file: Path) -> set[str]:
    """Return the distributions that a file may import from."""
    path = file.relative_to(ROOT)
    if path.parts[0] != "pumice":
        extras = [extra for at, extra in EXTRAS_OF_SERVICES.items() if path.is_relative_to(at)]
        asked = (SERVICES["optional-dependencies"][extra] for extra in extras)
        return names(SERVICES["dependencies"]).union(*map(names, asked))
    place = next(place for place in EXTRAS if path.is_relative_to(place))
    return brought(*EXTRAS[place])


@pytest.mark.parametrize("package", OWN)
def test_what_a_package_imports_is_declared(package: str) -> None:
    # A namespace that several distributions share, and what an extra alone brings.
    spans = SERVICES["optional-dependencies"]["telemetry"]
    brought_by = {
        **packages_distributions(),
        "opentelemetry": list(names(spans)),
        "pyarrow": ["pyarrow"],
    }

    def declared(module: str, file: Path) -> bool:
        return bool({name_of(dist) for dist in brought_by.get(module, ())} & needed_by(file))

    undeclared = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in sorted((ROOT / package).rglob("*.py"))
        if not all(declared(module, file) for module in may_import(file) - KNOWN)
        for module in sorted(modules_of(file))
        if not declared(module, file)
    ]
    assert undeclared == []


def test_both_distributions_have_one_version_and_ask_for_each_other_by_it() -> None:
    version = PUMICE["version"]
    assert SERVICES["version"] == version
    assert f"pumice=={version}" in SERVICES["dependencies"]
    assert f"pumice-services=={version}" in PUMICE["optional-dependencies"]["services"]


def test_what_both_ask_for_they_ask_for_alike() -> None:
    lists = (PUMICE["dependencies"], *PUMICE["optional-dependencies"].values())
    asked = {name_of(text): text for each in lists for text in each}
    differing = [t for t in SERVICES["dependencies"] if asked.get(name_of(t), t) != t]
    assert [text for text in differing if name_of(text) != "pumice"] == []
