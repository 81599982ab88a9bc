"""Distributions with plugins in them, for tests of what is found by entry point.

Put the folder that each function returns on `sys.path` (`monkeypatch.syspath_prepend`).
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def installed(example: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one of `examples` installed as pip does it, without any network."""
    source = tmp_path_factory.mktemp("source") / example
    target = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLES / example, source)
    flags = ["--no-index", "--no-build-isolation", "--no-deps", "--quiet", "--target", str(target)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *flags, source],
        check=True,
        timeout=50,
    )
    return target


def laid_out(
    folder: Path, *, group: str, entry: str, module: str, code: str, name: str = "acme"
) -> Path:
    """Return `folder` with version 2.0 of a distribution of one module, as an installer leaves it.

    `entry` is a line of the entry points' `group`: `plugin = module:Class`.
    """
    info = folder / f"{name}-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (folder / f"{module}.py").write_text(code)
    return folder
