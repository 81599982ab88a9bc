"""Installs the wheels as a user does, and runs the demo far from the checkout.

`python -m tools.wheel_check` does so with each Python from 3.11 to 3.14 that is on this machine
(`make wheel-check`); a test of the suite calls `check` with its own. Dependencies come from the
package index that pip is set up for. Standard library only.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
_STEP_S = 600


def build(folder: Path) -> Path:
    """Return a folder with the wheels of this checkout, made from a copy of its files."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in ("LICENSE", "NOTICE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    for name in ("pumice", "services", "shared", "distributions"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--no-index", "--disable-pip-version-check", "--wheel-dir", folder),
        *(source, source / "distributions" / "services"),
        cwd=folder,
    )
    shutil.rmtree(source)
    return folder


def wheel_of(distribution: str, wheels: Path) -> Path:
    """Return the wheel of one distribution."""
    (wheel,) = wheels.glob(f"{distribution.replace('-', '_')}-*.whl")
    return wheel


def install(python: str, asked: str, wheels: Path, folder: Path) -> Path:
    """Install `pumice` with what `asked` names, as `[local]`; returns the environment's programs.

    The distributions of this checkout come from `wheels`, all others from the package index.
    """
    environment, empty = folder / "environment", folder / "empty"
    empty.mkdir(parents=True)
    run(python, "-m", "venv", "--without-pip", environment, cwd=empty)
    own = environment / "bin"
    pumice = f"pumice{asked} @ {wheel_of('pumice', wheels).as_uri()}"
    pip(own, "install", "--quiet", "--find-links", wheels, pumice, cwd=empty)
    pip(own, "check", cwd=empty)
    return own


def pip(programs: Path, *words: object, cwd: Path) -> str:
    """Run our pip on another environment; returns its output."""
    ours = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    return run(*ours, "--python", programs / "python", *words, cwd=cwd)


def check(python: str, wheels: Path, folder: Path) -> str:
    """Install the wheels with the extra `local` and run the demo; returns what the demo said.

    Raises CalledProcessError, whose output says why, when a step fails.
    """
    own = install(python, "[local]", wheels, folder)
    empty = folder / "empty"
    output = run(own / "pumice", "demo", "--plain", cwd=empty)
    if left := sorted(path.name for path in empty.iterdir()):
        raise RuntimeError(f"the demo left {', '.join(left)} in the folder it was started in")
    return output


def run(*command: object, cwd: Path) -> str:
    """Run one step away from the checkout; returns its output."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_STEP_S,
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout)
    return done.stdout


def pythons() -> dict[str, str]:
    """Return the Pythons of this machine by version; what cannot be run is left out."""
    found: dict[str, str] = {}
    for version in VERSIONS:
        places = [shutil.which(f"python{version}")]
        places += map(str, sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python")))
        for place in filter(None, places):
            asked = "import sys; print('%d.%d' % sys.version_info[:2])"
            done = subprocess.run([place, "-c", asked], capture_output=True, text=True, check=False)
            if done.stdout.strip() == version:
                found[version] = place
                break
    return found


def main() -> int:
    """Check each Python; returns the exit code."""
    failed = []
    with tempfile.TemporaryDirectory(prefix="pumice-wheel-") as name:
        wheels = build(Path(name) / "wheels")
        found = pythons()
        for version in VERSIONS:
            if version not in found:
                print(f"Python {version}: not on this machine")
                continue
            try:
                output = check(found[version], wheels, Path(name) / version)
            except (subprocess.SubprocessError, OSError, RuntimeError) as error:
                failed.append(version)
                print(f"Python {version}: FAILED: {error}")
            else:
                line = next(line for line in output.splitlines() if "jobs completed" in line)
                print(f"Python {version}: {line.strip()}")
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
