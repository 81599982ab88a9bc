"""`make clean` and `make setup` remove what they have made, and nothing of the person's."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[3] / "Makefile"
CODE = ("pumice", "services", "shared", "tests", "tools", "benchmarks", "examples")


@pytest.fixture
def checkout(tmp_path):
    """A folder with the Makefile and the folders of a checkout."""
    for name in CODE:
        (tmp_path / name).mkdir()
    shutil.copy(MAKEFILE, tmp_path)
    return tmp_path


def make(checkout, *words):
    return subprocess.run(
        ["make", *words], cwd=checkout, capture_output=True, text=True, check=False, timeout=30
    )


def kept(path):
    """Put a file of the person there; returns it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    return path


def test_what_was_made_goes_and_what_lies_beside_it_stays(checkout):
    made = [
        kept(checkout / path)
        for path in (
            ".venv/.ready",
            "build/lib/pumice/module.py",
            "dist/pumice-0.1.0-py3-none-any.whl",
            "dist/pumice_services-0.1.0-py3-none-any.whl",
            "distributions/services/build/lib/services/module.py",
            "pumice.egg-info/PKG-INFO",
            "pumice_services.egg-info/PKG-INFO",
            "pumice/__pycache__/module.pyc",
            ".mypy_cache/data",
        )
    ]
    (checkout / ".venv" / "pyvenv.cfg").touch()
    mine = [
        kept(checkout / path)
        for path in ("build/notes", "dist/thesis.pdf", "other.egg-info/x", "mine/__pycache__/x")
    ]
    assert make(checkout, "clean").returncode == 0
    assert [path for path in made if path.exists()] == []
    assert [path.read_text() for path in mine] == ["mine"] * 4


def test_an_environment_that_was_not_made_here_stays(checkout):
    mine = [kept(checkout / ".venv" / "pyvenv.cfg"), kept(checkout / "work" / "thesis")]
    assert "was not made by make setup" in make(checkout, "clean").stdout
    assert "was not made by make setup" in make(checkout, "clean", "VENV=work").stdout
    assert [path.read_text() for path in mine] == ["mine"] * 2


def test_a_link_to_an_environment_goes_and_the_environment_stays(checkout, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    mine = [kept(elsewhere / ".ready"), kept(elsewhere / "pyvenv.cfg")]
    (checkout / ".venv").symlink_to(elsewhere)
    (checkout / "build").symlink_to(elsewhere)
    kept(elsewhere / "lib" / "module.py")
    assert make(checkout, "clean").returncode == 0
    assert not (checkout / ".venv").is_symlink()
    assert (elsewhere / "lib" / "module.py").exists()
    assert all(path.exists() for path in mine)


def test_setup_empties_no_folder_that_is_no_environment(checkout):
    mine = kept(checkout / "work" / "thesis")
    (checkout / "requirements").mkdir()
    (checkout / "requirements" / "dev.txt").touch()
    (checkout / "pyproject.toml").touch()
    kept(checkout / "distributions" / "services" / "pyproject.toml")
    answer = make(checkout, "setup", "VENV=work")
    assert answer.returncode != 0
    assert "is no virtual environment" in answer.stderr
    assert mine.read_text() == "mine"
