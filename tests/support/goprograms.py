"""Programs of others for tests that do what a person does at a terminal, built once per user.

`python -m tests.support.goprograms kubectl` builds one before the tests that take it. Each comes
from a pinned Go module beside this file and is kept in the cache: what is on the machine's PATH may
be of any age, and serves only where there is no Go.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pumice.local.build import GOMODS, find_go
from pumice.local.errors import LocalError
from pumice.local.parts import parts_dir
from pumice.local.versions import versions

HERE = Path(__file__).parent
NEXT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Programs that are built of the Kubernetes after the one of the parts."""
_PARTS = GOMODS / "kubernetes"
STAMP = f"k8s.io/component-base/version.gitVersion=v{versions().parts['kubernetes']}"


_STRIPPED = ("-trimpath", "-ldflags", "-s -w")
_OF_KUBERNETES = ("-trimpath", "-ldflags", f"-s -w -X {STAMP}")


def kubectl() -> Path:
    """Return kubectl of the pinned release (its build takes about a minute)."""
    return _built("kubectl", ".", *_OF_KUBERNETES, release=parts_dir("kubernetes").name)


def helm() -> Path:
    """Return helm of the pinned release (its build takes three minutes, and 86 MB stay)."""
    return _built("helm", "helm.sh/helm/v4/cmd/helm", *_STRIPPED, release=_pinned("helm"))


def kube_scheduler() -> Path:
    """Return the scheduler of the pinned Kubernetes, of the module of the other parts.

    Its build takes two minutes of CPU after theirs, and more without.
    """
    package, release = "k8s.io/kubernetes/cmd/kube-scheduler", parts_dir("kubernetes").name
    return _built("kube-scheduler", package, *_OF_KUBERNETES, release=release, module=_PARTS)


def next_kubernetes(name: str) -> Path:
    """Return a program of the Kubernetes after the one of the parts, such as kube-apiserver.

    The builds of `NEXT` take seven minutes of CPU together; 290 MB stay.
    """
    module = HERE / "kubernetes_1_37_module"
    pinned = re.search(r"k8s\.io/kubernetes (v\S+)", (module / "go.mod").read_text())
    assert pinned is not None, f"{module} pins no Kubernetes"
    stamp = f"k8s.io/component-base/version.gitVersion={pinned[1]}"
    flags = ("-trimpath", "-ldflags", f"-s -w -X {stamp}")
    package, release = f"k8s.io/kubernetes/cmd/{name}", f"kubernetes-{pinned[1].removeprefix('v')}"
    return _built(name, package, *flags, release=release, module=module)


def prometheus(name: str = "prometheus") -> Path:
    """Return Prometheus of the pinned release, whose targets are listed in its configuration.

    Its build takes two minutes of CPU, with its pages for browsers and the libraries of clouds left
    out; that of promtool takes another one.
    """
    package = f"github.com/prometheus/prometheus/cmd/{name}"
    return _built(
        *(name, package, "-tags", "remove_all_sd", *_STRIPPED),
        release=_pinned("prometheus"),
        module=HERE / "prometheus_module",
    )


def promtool() -> Path:
    """Return promtool of the same release."""
    return prometheus("promtool")


def operator(name: str, package: str, *, module: str) -> Path:
    """Return an operator of the check of frameworks, of `<module>_module`.

    Its build takes one to two minutes of CPU; 45 MB stay.
    """
    folder = HERE / f"{module}_module"
    return _built(name, package, *_STRIPPED, release=_pinned(module), module=folder)


def from_checkout(name: str, package: str, checkout: Path) -> Path:
    """Return a program of a checkout of its repository, which Go builds again where it changed."""
    program = parts_dir("kubernetes").with_name("tests-checkouts") / name
    program.parent.mkdir(parents=True, exist_ok=True)
    _build(find_go().path, program, package, *_STRIPPED, module=checkout)
    return program


def is_built(name: str, *, module: str) -> bool:
    """Tell whether an operator is in the cache."""
    return (parts_dir("kubernetes").with_name(f"tests-{_pinned(module)}") / name).exists()


def source_of(package: str, *, module: str) -> Path:
    """Return the folder of a Go module that `<module>_module` pins, after fetching it.

    Raises LocalError without Go.
    """
    found = subprocess.run(
        [find_go().path, "mod", "download", "-json", package],
        cwd=HERE / f"{module}_module",
        env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        check=True,
        capture_output=True,
    )
    return Path(json.loads(found.stdout)["Dir"])


def at_a_terminal(
    words: Sequence[str],
    *,
    programs: Path,
    cwd: Path,
    stdin: str = "",
    timeout_s: float = 100,
    **environ: str,
) -> "subprocess.CompletedProcess[str]":
    """Run what a person types, who finds the programs of a folder and those of this Python."""
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        words,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, "PATH": path, **environ},
    )


def _pinned(name: str) -> str:
    """Return a name for the release that a module pins."""
    pins = (HERE / f"{name}_module" / "go.mod").read_bytes()
    return f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"


def _built(name: str, package: str, *flags: str, release: str, module: Path | None = None) -> Path:
    """Return a program, after building it if it is not there; of `<name>_module` by default."""
    folder = parts_dir("kubernetes").with_name(f"tests-{release}")
    program = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            go = _go()
            if go is None:
                return Path(shutil.which(name) or program)
            draft = folder / f"{name}.{os.getpid()}"
            _build(go, draft, package, *flags, module=module or HERE / f"{name}_module")
            draft.rename(program)
    return program


def _build(go: Path, program: Path, package: str, *flags: str, module: Path) -> None:
    subprocess.run(
        [go, "build", "-mod=readonly", "-buildvcs=false", *flags, "-o", program, package],
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        check=True,
    )


def _go() -> Path | None:
    try:
        return find_go().path
    except LocalError:
        return None


if __name__ == "__main__":
    {"kubectl": kubectl, "helm": helm, "native": lambda: list(map(next_kubernetes, NEXT))}[
        sys.argv[1]
    ]()
