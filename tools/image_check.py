"""Builds the image twice and looks into it: `make image-check`.

The same sources must give the same files. The image must carry its labels and a list of its
contents (CycloneDX), which has to be exactly the lock. Every locked package must have a wheel for
arm64 as well, so that the Dockerfile builds there without a compiler. Not part of `make test`: it
needs Docker, as `make compose-check` does.
"""

import re
import subprocess
import sys
import tempfile
from typing import Any, Final

import msgspec

from tools.compose_check import ensure, version_of_project
from tools.compose_docker import ROOT, CheckError, Docker, docker

LOCK: Final = ROOT / "requirements" / "base.txt"
_OWN: Final = {"pumice", "pumice-services"}
_ENVIRONMENT: Final = {"pip"}
"""Packages that a virtual environment has by itself."""
_FILES: Final = (
    "cd /opt/pumice; find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -type l | sort"
)
_ARM64: Final = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64")


def check(tools: Docker) -> None:
    """Build, compare, look. Raises CheckError."""
    version = version_of_project()
    ensure(tools, f"pumice:{version}")
    names = ("pumice-check:first", "pumice-check:second")
    for name in names:
        flags = ("--no-cache", "--network=host", "--build-arg=REVISION=checked", "--tag", name)
        if not tools.run("build", *flags, ".", quiet=True):
            raise CheckError("the image could not be built; `docker build .` shows why")
    first, second = (_files(tools, name) for name in names)
    if unlike := sorted(set(first) ^ set(second)):
        raise CheckError("two builds differ in: " + ", ".join(line[66:] for line in unlike[:10]))
    print(f"image-check: two builds have the same {len(first)} files")
    _labels(tools, names[0], version)
    _contents(tools, names[0])
    tools.run("image", "rm", *names, quiet=True)


def _files(tools: Docker, name: str) -> list[str]:
    return tools.output("run", "--rm", name, "sh", "-c", _FILES).splitlines()


def _labels(tools: Docker, name: str, version: str) -> None:
    shown: list[dict[str, Any]] = msgspec.json.decode(tools.output("image", "inspect", name))
    labels = shown[0]["Config"]["Labels"]
    prefix = "org.opencontainers.image"
    if labels[f"{prefix}.version"] != version or labels[f"{prefix}.revision"] != "checked":
        raise CheckError(f"its labels are {labels}")
    print(f"image-check: its labels name version {version} and the revision")


def _contents(tools: Docker, name: str) -> None:
    told = msgspec.json.decode(
        tools.output("run", "--rm", name, "cat", "/opt/pumice/sbom.cdx.json")
    )
    listed = {
        f"{component['name'].lower().replace('_', '-')}=={component['version']}"
        for component in told["components"]
        if component["name"].lower() not in _OWN | _ENVIRONMENT
    }
    locked = set(re.findall(r"^([\w.-]+==[^ ;\\]+)", LOCK.read_text(), re.MULTILINE))
    if listed - locked:
        raise CheckError(f"inside and not in the lock: {sorted(listed - locked)}")
    print(f"image-check: its list of contents names {len(listed)} packages of the lock")


def wheels_for_arm64() -> None:
    """Have pip find a wheel of each locked package for arm64. Raises CheckError."""
    with tempfile.TemporaryDirectory() as folder:
        platforms = [word for name in _ARM64 for word in ("--platform", name)]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"),
                *platforms,
                *("--python-version=3.13", "--only-binary=:all:", "--no-deps"),
                *("--require-hashes", "-r", str(LOCK), "-d", folder),
            ],
            check=False,
        )
    if done.returncode:
        raise CheckError("not every locked package has a wheel for arm64; see above")
    print("image-check: every locked package has a wheel for arm64")


def main() -> int:
    """Check; return the exit code."""
    try:
        wheels_for_arm64()
        with docker() as tools:
            check(tools)
    except (CheckError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("image-check: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
