"""A release: its sources and an environment with its own dependencies."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_ACCOUNTS = """
import json, sys
from pumice.deploy.nats_accounts import ADMIN, accounts
from shared.contracts.permissions import permissions
cluster, passwords = json.load(sys.stdin)
known = {ADMIN, *permissions(cluster)}
given = {user: word for user, word in passwords.items() if user in known}
json.dump(accounts(cluster, given), sys.stdout)
"""


class Release(NamedTuple):
    """One state of the sources, and a Python that has it installed."""

    name: str
    source: Path
    python: Path

    @property
    def base(self) -> Path:
        """Its manifests."""
        return self.source / "k8s" / "base"

    def accounts(self, cluster: str, passwords: dict[str, str]) -> dict:
        """Return the accounts of its NATS server, for those of the users that it knows."""
        given = json.dumps([cluster, passwords])
        return json.loads(_output(self.python, "-P", "-c", _ACCOUNTS, given=given))


def this() -> Release:
    """Return the release of this checkout."""
    return Release("this", ROOT, Path(sys.executable))


def commit_of(revision: str) -> str:
    """Return the commit of a revision of this repository."""
    words = ("git", "-C", ROOT, "rev-parse", "--verify", f"{revision}^{{commit}}")
    return _output(*words).strip()


def made(revision: str, folder: Path) -> Release:
    """Return a release of the history, made in `folder` unless it is there already.

    Its environment has the dependencies of its own lock, and itself installed as the image has it.
    """
    commit = commit_of(revision)
    home = folder / commit[:12]
    release = Release(commit[:7], home / "source", home / "venv" / "bin" / "python")
    ready = home / "ready"
    if not ready.exists():
        unpacked(commit, release.source)
        _output(sys.executable, "-m", "venv", "--clear", home / "venv")
        pip = (release.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _output(*pip, "--require-hashes", "-r", release.source / "requirements" / "base.txt")
        own = (release.source, release.source / "distributions" / "services")
        _output(*pip, "--no-build-isolation", "--no-deps", *own)
        ready.touch()
    return release


def unpacked(commit: str, target: Path) -> Path:
    """Return a folder with the sources of a commit, made as `target`."""
    words = ("git", "-C", ROOT, "archive", commit)
    packed = subprocess.run(words, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")
    return target


def _output(*words: object, given: str = "") -> str:
    """Return what a program prints; fails with what it said on stderr."""
    argv = [str(word) for word in words]
    ended = subprocess.run(argv, capture_output=True, text=True, input=given, check=False)
    assert ended.returncode == 0, f"{' '.join(argv[:6])}: {ended.stderr[-2000:]}"
    return ended.stdout
