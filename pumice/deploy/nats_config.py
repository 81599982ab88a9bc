"""The configuration of the NATS server: one user per service, each with exactly its subjects.

Made from `shared.contracts.permissions`, the one table of who may say what.
`tools/write_nats_config.py` writes it into the manifests in k8s/, where the server takes each
password from its environment; `pumice.deploy.compose_init` writes it for the Compose stack, whose
server has no environment to speak of, into a file that this server alone can read.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from shared.contracts.permissions import permissions

GIB: Final = 1024**3
CLIENT_PORT: Final = 4222
MONITOR_PORT: Final = 8222
ADMIN: Final = "admin"

_VARIABLE: Final = re.compile(r'"(\$PUMICE_[A-Z_]+)"')


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the places where a server runs."""

    name: str
    """Its name in messages; may be a variable (`$PUMICE_…`)."""
    cluster: str
    """Name of the Pumice cluster, part of every subject."""
    store_dir: str
    memory_bytes: int = 3 * GIB
    """Must hold STATE, which reserves its bound of 2 GiB when it is created."""
    file_bytes: int = 8 * GIB


def password_variable(user: str) -> str:
    """Return the environment variable from which the server takes a user's password.

    NATS reads the value as it reads a value of its configuration: it must begin with a letter and
    hold only letters and digits, else `12e4` becomes a number
    (`pumice.deploy.nats_secrets.password`).
    """
    return f"PUMICE_NATS_{user.upper()}_PASSWORD"


def variables(cluster: str) -> dict[str, str]:
    """Return, in place of each service user's password, the variable that holds it."""
    return {user: f"${password_variable(user)}" for user in sorted(permissions(cluster))}


def render(server: Server, passwords: Mapping[str, str]) -> str:
    """Return the text of the configuration file for the users of `passwords`.

    A user that is no service's (`ADMIN`) may do everything.
    """
    allowed = permissions(server.cluster)
    entries: list[dict[str, object]] = []
    for user, password in passwords.items():
        entry: dict[str, object] = {"user": user, "password": password}
        if user in allowed:
            entry["permissions"] = {
                "publish": list(allowed[user].publish),
                "subscribe": list(allowed[user].subscribe),
            }
        entries.append(entry)
    document = {
        "server_name": server.name,
        "port": CLIENT_PORT,
        "http_port": MONITOR_PORT,
        "jetstream": {
            "store_dir": server.store_dir,
            "max_memory_store": server.memory_bytes,
            "max_file_store": server.file_bytes,
        },
        "authorization": {"users": entries},
    }
    # NATS takes JSON; only a variable must stand without quotes to be one.
    return _VARIABLE.sub(r"\1", json.dumps(document, indent=2)) + "\n"
