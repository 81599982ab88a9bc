"""The programs of a real node: built once from pinned Go modules, or taken from the distribution.

Go builds kubelet, kube-proxy, kube-scheduler and CoreDNS; containerd, runc, the CNI plugins and
iptables come from Debian's packages.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from pumice.local.build import find_go, version_stamps
from pumice.local.parts import parts_dir, require
from tests.support.goprograms import kubectl
from tools.compose_docker import CheckError

MODULES: Final = Path(__file__).with_name("modules")
CNI: Final = Path("/usr/lib/cni")
_KUBERNETES: Final = ("kubelet", "kube-proxy", "kube-scheduler")
_PACKAGES: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
}
"""Programs of the machine, and Debian's package of each."""


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """Paths by name."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]


def cost() -> str:
    """Return a line with what the check takes."""
    return (
        "node-check needs root and Debian's packages containerd, runc, containernetworking-plugins,"
        " iptables, conntrack, docker.io and debootstrap; the first run builds programs (7 min,"
        " 280 MB) and images (3 min, 900 MB), later ones take about 5 min"
    )


def find(more: Mapping[str, Path]) -> Programs:
    """Return all programs and `more`, after building what is missing. Raises CheckError."""
    missing = {package for program, package in _PACKAGES.items() if not shutil.which(program)}
    if not (CNI / "bridge").exists():
        missing.add("containernetworking-plugins")
    if missing:
        raise CheckError(f"not here: apt-get install {' '.join(sorted(missing))}")
    parts = require(("etcd", "kube-apiserver", "kube-controller-manager"))
    found = {program: Path(shutil.which(program) or program) for program in _PACKAGES}
    return Programs(paths={**found, **parts, "kubectl": kubectl(), **_built(), **more})


def _built() -> dict[str, Path]:
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES]
    return {
        **_build("kubernetes", _KUBERNETES, packages, stamps=version_stamps("kubernetes")),
        **_build("coredns", ("coredns",), ["."], stamps=""),
        **_build("pause", ("pause",), ["."], stamps=""),
    }


def _build(
    module: str, programs: tuple[str, ...], packages: list[str], *, stamps: str
) -> dict[str, Path]:
    pins = hashlib.sha256((MODULES / module / "go.mod").read_bytes()).hexdigest()[:12]
    folder = parts_dir("kubernetes").with_name(f"node-{module}-{pins}")
    found = {name: folder / name for name in programs}
    if all(path.exists() for path in found.values()):
        return found
    print(f"building {', '.join(programs)}", flush=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    done = subprocess.run(
        [
            *(str(find_go().path), "build", "-mod=readonly", "-buildvcs=false", "-trimpath"),
            *("-ldflags", f"-s -w {stamps}", "-o", f"{draft}{os.sep}", *packages),
        ],
        cwd=MODULES / module,
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        check=False,
    )
    if done.returncode:
        raise CheckError(f"{', '.join(programs)} cannot be built; see above")
    draft.rename(folder)
    return found
