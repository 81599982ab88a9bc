"""Kubeconfig files: one cluster, one user, one context, nothing inherited from elsewhere."""

import base64
from pathlib import Path

import msgspec
import yaml

from pumice.local.authority import Pair
from pumice.local.files import write_private


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubeconfig says: where, whom to trust, and who we are (a token or a certificate)."""

    server: str
    ca: Path
    token: str = ""
    client: Pair | None = None
    user: str = "pumice-admin"
    context: str = "pumice"


def write_kubeconfig(path: Path, entry: Entry) -> None:
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


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
