"""What the two wheels bring, and what a program of others loads when it imports `pumice` (ADR 21).

The wheels are installed without their dependencies; a finder then lets a program import what its
distribution asks for, and refuses everything else that lies in the environment of the suite.
"""

import re
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest

from tests.unit.project.test_dependencies import PUMICE, name_of
from tools import wheel_check

HEAVY = {
    *("aiohttp", "cryptography", "kubernetes_asyncio", "numpy", "opentelemetry"),
    *("services", "shared"),
}
PROGRAM = """
import importlib.machinery
import sys

class Asked(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {allowed} or name.partition(".")[0] in sys.stdlib_module_names:
            return super().find_spec(name, path, target)

of_python = (importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter)
sys.meta_path[:] = [*of_python, Asked]
sys.path[:0] = [{site!r}]
import pumice
assert pumice.__file__.startswith({site!r}), pumice.__file__
{code}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_check.build(tmp_path_factory.mktemp("wheels") / "built")


def installed(distribution: str, wheels: Path, target: Path) -> Path:
    """Install one wheel without anything else; returns the folder."""
    flags = ("--no-index", "--no-deps", "--quiet", "--disable-pip-version-check")
    wheel = wheel_check.wheel_of(distribution, wheels)
    wheel_check.run(
        *(sys.executable, "-m", "pip", "install", *flags, "--target", target, wheel), cwd=wheels
    )
    return target


@pytest.fixture(scope="module")
def site(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed("pumice", wheels, tmp_path_factory.mktemp("site"))


def tops(folder: Path) -> set[str]:
    """Return the top-level packages and modules of a folder with installed distributions."""
    found = {path.stem for path in folder.iterdir() if not path.name.endswith(".dist-info")}
    return found - {"bin", "__pycache__"}


def asked_for(*extras: str) -> set[str]:
    """Return the top-level modules of what `pumice` with these extras brings, at any depth."""
    waiting = list(PUMICE["dependencies"])
    for extra in extras:
        waiting += PUMICE["optional-dependencies"][extra]
    closure: set[str] = set()
    while waiting:
        name = name_of(waiting.pop())
        if name in closure:
            continue
        closure.add(name)
        with suppress(metadata.PackageNotFoundError):  # asked for on another Python only
            requires = metadata.requires(name) or []
            waiting += [text for text in requires if not re.search(r"\bextra\s*==", text)]
    by_module = metadata.packages_distributions()
    return {"pumice"} | {m for m, by in by_module.items() if {*map(name_of, by)} & closure}


def loaded_by(code: str, site: Path, *extras: str) -> set[str]:
    """Return the top-level modules of a program that runs `code` on what it asked for."""
    text = PROGRAM.format(allowed=sorted(asked_for(*extras)), site=str(site), code=code)
    done = subprocess.run(
        [sys.executable, "-P", "-c", text],
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_a_program_of_others_gets_one_top_level_package(site: Path) -> None:
    assert tops(site) == {"pumice"}


def test_the_live_page_comes_whole(site: Path) -> None:
    here, there = (root / "pumice" / "web" / "page" for root in (wheel_check.ROOT, site))
    names = {file.relative_to(here) for file in here.rglob("*") if file.is_file()}
    assert {Path("index.html"), Path("views/queues.js")} <= names
    assert {file.relative_to(there) for file in there.rglob("*") if file.is_file()} == names


def test_the_services_are_the_other_distribution(wheels: Path, tmp_path: Path) -> None:
    assert tops(installed("pumice-services", wheels, tmp_path)) == {"services", "shared"}


def test_a_subscriber_loads_nothing_heavy(site: Path) -> None:
    loaded = loaded_by("import pumice.events; pumice.events.subscribe", site)
    assert loaded & HEAVY == set()
    assert {"msgspec", "pumice"} <= loaded


def test_a_job_plugin_loads_nothing_heavy(site: Path) -> None:
    assert loaded_by("import pumice.plugins.jobs", site) & HEAVY == set()


def test_a_scheduler_plugin_loads_numpy_alone(site: Path) -> None:
    code = "from pumice.plugins import Arguments, Cluster, Hooks, Opinion, Vote"
    assert loaded_by(code, site, "plugins") & HEAVY == {"numpy"}


def test_a_webhook_needs_aiohttp_alone(site: Path) -> None:
    loaded = loaded_by("import pumice.events.webhook, pumice.cli.events", site, "webhook")
    assert loaded & HEAVY == {"aiohttp"}


@pytest.mark.parametrize("command", ["down", "events", "parts", "status", "trace"])
def test_commands_that_look_at_a_cluster_need_no_services(command: str, site: Path) -> None:
    code = f"""
from pumice.cli.main import main
try: main([{command!r}, "--help"])
except SystemExit: pass
"""
    assert loaded_by(code, site) & HEAVY == set()


@pytest.mark.parametrize(
    ("command", "extra"), [("up", "local"), ("demo", "local"), ("run", "services")]
)
def test_other_commands_name_the_extra_that_they_need(command: str, extra: str, site: Path) -> None:
    code = f"""
import contextlib, io
from pumice.cli.main import main
with contextlib.redirect_stderr(io.StringIO()) as said:
    assert main([{command!r}]) == 1
assert "pumice[{extra}]" in said.getvalue(), said.getvalue()
"""
    loaded_by(code, site)
