"""The configuration of the NATS server: one user per service, each with exactly its subjects.

Made from `shared.contracts.permissions`, the one table of permissions.
`tools/write_manifests.py` writes it into the manifests in k8s/, where the server takes each
password from its environment; `pumice.deploy.compose_init` writes it for the Compose stack, whose
server has no environment to speak of, into a file that this server alone can read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pumice.deploy.nats_accounts import accounts
from shared.contracts.permissions import permissions

GIB: Final = 1024**3
CLIENT_PORT: Final = 4222
MONITOR_PORT: Final = 8222
ROUTE_PORT: Final = 6222

_FILES: Final = {"cert": "crt", "key": "key"}
_VARIABLE: Final = re.compile(r'"(\$PUMICE_[A-Z0-9_]+)"')


class Routes(msgspec.Struct, frozen=True, kw_only=True):
    """How several servers make one cluster, in which each stream has copies on more than one."""

    name: str
    """Name of the cluster of servers."""
    listen: str
    """Address for the other servers."""
    peers: tuple[str, ...]
    """`host:port` of each server; a server's own may be among them."""
    certificate: str = ""
    """Directory of `tls.crt`, `tls.key` and `ca.crt`, by which the servers know each other."""


class NatsServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that differ between Kubernetes, Compose and the local cluster."""

    name: str
    """Its name in messages; may be a variable (`$PUMICE_…`)."""
    cluster: str
    """Name of the Pumice cluster, part of every subject."""
    store_dir: str
    listen: str = ""
    """Address for clients alone; empty: every address, and one for monitoring."""
    monitor: str = ""
    """Address for monitoring, where `listen` is given; empty: none."""
    certificate: str = ""
    """Directory of `tls.crt` and `tls.key`; empty: clients connect without TLS."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose events have subscribers of their own."""
    memory_bytes: int = 3 * GIB
    """Must hold STATE, which reserves its bound of 2 GiB when it is created."""
    file_bytes: int = 8 * GIB
    routes: Routes | None = None
    """The servers of which it is one; None: it is alone."""


def password_variable(user: str) -> str:
    """Return the environment variable from which the server takes a user's password.

    NATS reads the value as it reads a value of its configuration: it must begin with a letter and
    hold only letters and digits, else `12e4` becomes a number
    (`pumice.deploy.nats_secrets.password`).
    """
    return f"PUMICE_NATS_{user.upper().replace('-', '_')}_PASSWORD"


def variables(cluster: str, namespaces: Sequence[str] = ()) -> dict[str, str]:
    """Return, in place of each service user's password, the variable that holds it."""
    return {
        user: f"${password_variable(user)}" for user in sorted(permissions(cluster, namespaces))
    }


def render(server: NatsServerConfig, passwords: Mapping[str, str]) -> str:
    """Return the text of the configuration file for the users of `passwords`.

    A user that is no service's (`ADMIN`) may do everything.
    """
    document = {
        "server_name": server.name,
        **_listening(server),
        **_encrypting(server),
        "jetstream": _storing(server),
        **_routing(server.routes),
        "accounts": accounts(server.cluster, passwords, server.namespaces),
    }
    # NATS takes JSON; only a variable must stand without quotes to be one.
    return _VARIABLE.sub(r"\1", json.dumps(document, indent=2)) + "\n"


def render_routes(server: NatsServerConfig, *, beside: str) -> str:
    """Return the text of a configuration file that makes one of several servers of `beside`.

    Settings here override those of the included file.
    """
    changed = {"jetstream": _storing(server), **_routing(server.routes)}
    sections = (f"{key}: {json.dumps(value, indent=2)}\n" for key, value in changed.items())
    return f"include ./{beside}\n{''.join(sections)}"


def _routing(routes: Routes | None) -> dict[str, object]:
    """Return the section `cluster`. Clients do not get the other servers' addresses.

    They come by the name that the server's certificate is for.
    """
    if routes is None:
        return {}
    scheme = "tls" if routes.certificate else "nats-route"
    section: dict[str, object] = {
        "name": routes.name,
        "listen": routes.listen,
        "no_advertise": True,
        "routes": [f"{scheme}://{peer}" for peer in routes.peers],
    }
    if routes.certificate:
        section["tls"] = {
            **_files(routes.certificate),
            "ca_file": f"{routes.certificate}/ca.crt",
            "verify": True,
        }
    return {"cluster": section}


def _storing(server: NatsServerConfig) -> dict[str, object]:
    return {
        "store_dir": server.store_dir,
        "max_memory_store": server.memory_bytes,
        "max_file_store": server.file_bytes,
    }


def _listening(server: NatsServerConfig) -> dict[str, object]:
    if server.listen:
        monitoring = {"http": server.monitor} if server.monitor else {}
        return {"listen": server.listen, **monitoring}
    return {"port": CLIENT_PORT, "http_port": MONITOR_PORT}


def _encrypting(server: NatsServerConfig) -> dict[str, object]:
    if not server.certificate:
        return {}
    return {"tls": _files(server.certificate)}


def _files(directory: str) -> dict[str, object]:
    return {f"{word}_file": f"{directory}/tls.{end}" for word, end in _FILES.items()}
