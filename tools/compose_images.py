"""Images for `tools.compose_check`: pulled, else made here under their public names.

Where no registry can be reached, the parts' images are made of the very programs that the local
stack runs, one static program in an empty image; the Python base is a small Debian with its own
Python. Both are for this check only, and it says so. Our own image is always built from the
Dockerfile.
"""

import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from pumice.local import parts
from pumice.local.versions import versions
from tools.compose_docker import ROOT, CheckError, Docker

PROGRAMS: Final = {
    "etcd": "/usr/local/bin/etcd",
    "kube-apiserver": "/usr/local/bin/kube-apiserver",
    "kube-controller-manager": "/usr/local/bin/kube-controller-manager",
    "kwok": "/usr/local/bin/kwok",
    "nats-server": "/nats-server",
}
"""Where each public image has its program, as docker-compose.yml names it."""

_PULL_S: Final = 600.0
_DEBIAN: Final = "bookworm"
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_CONFIG: Final = Path("/etc/pip.conf")


def ensure(docker: Docker, own_image: str) -> None:
    """Have every image of docker-compose.yml at the daemon. Raises CheckError."""
    for part in ("python", *PROGRAMS):
        name = versions().images[part]
        if docker.run("image", "inspect", name, quiet=True):
            continue
        print(f"pulling {name}", flush=True)
        if docker.run("pull", name, quiet=True, timeout_s=_PULL_S):
            continue
        if part == "python":
            _debian(docker, name)
        else:
            _scratch(docker, name, part)
    if not docker.run("build", "--network=host", "--tag", own_image, "."):
        raise CheckError("the image could not be built from the Dockerfile; see above")


def _scratch(docker: Docker, name: str, part: str) -> None:
    """Make an image that holds one program of the local stack and nothing else."""
    program = parts.require((part,))[part]
    target = PROGRAMS[part]
    print(f"making {name} of {program}: for this check only", flush=True)
    with tempfile.TemporaryDirectory(prefix="pumice-image-") as folder:
        shutil.copy(program, Path(folder) / "program")
        (Path(folder) / "Dockerfile").write_text(
            f'FROM scratch\nCOPY program {target}\nENTRYPOINT ["{target}"]\n'
        )
        if not docker.run("build", "--tag", name, folder, quiet=True):
            raise CheckError(f"{name} could not be made")


def _debian(docker: Docker, name: str) -> None:
    """Make a base image with a Python: Debian's, by debootstrap."""
    program = shutil.which("debootstrap")
    if program is None:
        raise CheckError(
            f"{name} cannot be pulled, and there is no debootstrap to make it "
            "(on Debian and Ubuntu: apt-get install debootstrap)"
        )
    print(f"making {name} of Debian {_DEBIAN} and its Python: for this check only", flush=True)
    with tempfile.TemporaryDirectory(prefix="pumice-debian-") as folder:
        root = Path(folder) / "root"
        packages = "python3,python3-venv,ca-certificates"
        subprocess.run(
            [program, "--variant=minbase", f"--include={packages}", _DEBIAN, str(root)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for path in (_CERTIFICATES, _PIP_CONFIG):  # what this machine's pip needs, ours will too
            if path.exists():
                shutil.copy(path, root / path.relative_to("/"))
        archive = Path(folder) / "root.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        if not docker.run("import", str(archive), name, quiet=True):
            raise CheckError(f"{name} could not be imported")


def version_of_project() -> str:
    """Return the version in pyproject.toml, the tag of our own image."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(document["project"]["version"])
