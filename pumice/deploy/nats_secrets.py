"""Prints the Secrets of NATS for a cluster: `python -P -m pumice.deploy.nats_secrets`.

One Secret per user, so that each service mounts its own and nothing else; the NATS server takes
all of them into its environment. One Secret more has the server's certificate, under the names that
cert-manager uses, too; of it, services mount the authority's certificate alone. The authority's key
is kept nowhere: a renewal makes a new authority.

The manifests go to stdout for `kubectl create -f -`: `create`, not `apply`, so that a second run
says that they exist instead of changing passwords under running services.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pumice.local.authority import Authority
from shared.contracts.permissions import permissions

STATE_KEY: Final = "pumice-state-key"
TLS: Final = "pumice-nats-tls"
SERVICE: Final = "pumice-nats"
"""Name of the NATS server's Service."""
PEERS: Final = "pumice-nats-peers"
"""Name of the Service by which several NATS servers find each other."""
_PART_OF: Final = {"app.kubernetes.io/part-of": "pumice"}


def password() -> str:
    """Return a new password: 192 random bits in a form that NATS takes for text."""
    return f"p{secrets.token_hex(24)}"


def secret_name(user: str) -> str:
    """Return the name of a user's Secret."""
    return f"pumice-nats-{user}"


def manifests(
    *, namespace: str, cluster: str, event_namespaces: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return a Secret with fresh credentials for each user of `cluster`, and the key of STATE.

    That key seals jobs on STATE, for the cache and the controller.
    """
    users = [
        _secret(secret_name(user), namespace, {"username": user, "password": password()})
        for user in sorted(permissions(cluster, event_namespaces))
    ]
    return [*users, _secret(STATE_KEY, namespace, {"key": secrets.token_hex(32)})]


def certificate(namespace: str) -> dict[str, Any]:
    """Return the Secret with a new certificate of the NATS server, by a new authority."""
    authority = Authority("pumice-nats-ca")
    cert, key = authority.issued(SERVICE, hosts=server_names(namespace))
    files = {"ca.crt": authority.certificate, "tls.crt": cert, "tls.key": key}
    return _secret(TLS, namespace, files, kind="kubernetes.io/tls")


def server_names(namespace: str) -> tuple[str, ...]:
    """Return the names by which clients and other servers call a server.

    The last ones are for a port-forward.
    """
    within = (namespace, f"{namespace}.svc", f"{namespace}.svc.cluster.local")
    names = (f"{name}.{end}" for name in (SERVICE, f"*.{PEERS}") for end in within)
    return (SERVICE, *names, "localhost", "127.0.0.1")


def server_address(number: int, namespace: str) -> str:
    """Return the name by which the other servers call one of several."""
    return f"{SERVICE}-{number}.{PEERS}.{namespace}.svc"


def _secret(
    name: str, namespace: str, data: dict[str, str], *, kind: str = "Opaque"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(_PART_OF)},
        "type": kind,
        "stringData": data,
    }


def main(argv: Sequence[str]) -> None:
    """Print the Secrets."""
    parser = argparse.ArgumentParser(prog="pumice.deploy.nats_secrets", description=__doc__)
    parser.add_argument("--namespace", default="pumice-system")
    parser.add_argument("--cluster", default="main", help="PUMICE_CLUSTER of the services")
    parser.add_argument(
        "--event-namespaces", default="", help="namespaces with subscribers of their own"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--only-certificate",
        action="store_true",
        help="print the server's certificate alone: a new one, or for an installation without",
    )
    which.add_argument(
        "--server-ca",
        type=Path,
        metavar="FILE",
        help="authority of a server of your own, which has a certificate",
    )
    which.add_argument(
        "--only-user",
        metavar="USER",
        help="print the Secret of this user alone: of one that an upgrade brings",
    )
    given = parser.parse_args(argv)
    users = manifests(
        namespace=given.namespace,
        cluster=given.cluster,
        event_namespaces=[name for name in given.event_namespaces.split(",") if name],
    )
    if given.server_ca:
        own = given.server_ca.read_text(encoding="utf-8")
        tls = _secret(TLS, given.namespace, {"ca.crt": own})
    else:
        tls = certificate(given.namespace)
    documents = [tls] if given.only_certificate else [*users, tls]
    if given.only_user:
        name = secret_name(given.only_user)
        documents = [found for found in users if found["metadata"]["name"] == name]
        if not documents:
            parser.error(f"there is no user {given.only_user!r} in cluster {given.cluster!r}")
    sys.stdout.write(yaml.safe_dump_all(documents, sort_keys=False))


if __name__ == "__main__":
    main(sys.argv[1:])
