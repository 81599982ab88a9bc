"""What lies beside the modules of a package goes into its wheel."""

import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WHEELS = {
    "pyproject.toml": ("pumice",),
    "distributions/services/pyproject.toml": ("services", "shared"),
}


def tracked(package: str) -> Iterator[Path]:
    found = subprocess.run(
        ["git", "ls-files", package], cwd=ROOT, check=True, capture_output=True, text=True
    )
    yield from (ROOT / name for name in found.stdout.splitlines())


def is_packed(file: Path, data: dict[str, list[str]]) -> bool:
    """Tell whether a pattern of the package data takes a file."""
    for package, patterns in data.items():
        folder = file.parent if package == "*" else ROOT / package.replace(".", "/")
        if not file.is_relative_to(folder) or not (folder / "__init__.py").exists():
            continue
        if any(fnmatch(str(file.relative_to(folder)), pattern) for pattern in patterns):
            return True
    return False


@pytest.mark.parametrize("project", WHEELS)
def test_each_file_of_a_package_is_in_its_wheel(project: str) -> None:
    settings = tomllib.loads((ROOT / project).read_text("utf-8"))["tool"]["setuptools"]
    data = settings.get("package-data", {})
    files = [file for package in WHEELS[project] for file in tracked(package)]

    assert files
    left_out = [f for f in files if f.suffix != ".py" and not is_packed(f, data)]
    assert left_out == []
