"""Kubeconfig files: one cluster, one user, one context, nothing inherited from elsewhere."""

import base64
from pathlib import Path
from typing import Final

import msgspec
import yaml

from pumice.local.authority import ADMIN_NAME, Pair
from pumice.local.errors import WrongSettingError
from pumice.local.files import write_private

_CONTEXT: Final = "pumice"
_KINDS: Final = ("clusters", "contexts", "users")


class KubeconfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server, the authority of its certificate, and credentials: a token or a certificate."""

    server: str
    ca: Path
    token: str = ""
    client: Pair | None = None
    user: str = ADMIN_NAME
    context: str = _CONTEXT


def write_kubeconfig(path: Path, entry: KubeconfigEntry) -> None:
    """Write the file with everything inline, readable by its owner alone."""
    user: dict[str, str] = {}
    if entry.token:
        user["token"] = entry.token
    if entry.client is not None:
        user["client-certificate-data"] = _inline(entry.client.cert)
        user["client-key-data"] = _inline(entry.client.key)
    cluster = {"server": entry.server, "certificate-authority-data": _inline(entry.ca)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": entry.context, "cluster": cluster}],
        "users": [{"name": entry.user, "user": user}],
        "contexts": [
            {"name": entry.context, "context": {"cluster": entry.context, "user": entry.user}}
        ],
        "current-context": entry.context,
    }
    write_private(path, yaml.safe_dump(document, sort_keys=False))


def check_replaceable(path: Path) -> None:
    """Raise WrongSettingError unless `path` is free, or holds a kubeconfig of a local cluster."""
    if path.is_symlink() or (path.exists() and not _is_ours(path)):
        raise WrongSettingError(
            f"--kubeconfig-out: {path} is there already and is not of a local cluster;"
            " give another file"
        )


def copy_kubeconfig(source: Path, target: Path) -> None:
    """Write a copy that its owner alone may read; raises as `check_replaceable` does."""
    check_replaceable(target)
    try:
        write_private(target, source.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WrongSettingError(f"--kubeconfig-out: cannot write {target}: {reason}") from error


def _is_ours(path: Path) -> bool:
    """Return whether a file knows one local cluster and nothing else that would be lost."""
    try:
        document = yaml.safe_load(path.read_bytes())
        names = [{entry["name"] for entry in document[kind]} for kind in _KINDS]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return False
    return names == [{_CONTEXT}, {_CONTEXT}, {ADMIN_NAME}]


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
