"""Prints the Secrets of the NATS users for a cluster: `python -P -m pumice.deploy.nats_secrets`.

One Secret per user, so that each service mounts its own and nothing else; the NATS server takes
all of them into its environment. The manifests go to stdout for `kubectl create -f -`: `create`,
not `apply`, so that a second run says that they exist instead of changing passwords under running
services.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from shared.contracts.permissions import permissions


def password() -> str:
    """Return a new password: 192 random bits in a form that NATS takes for text."""
    return f"p{secrets.token_hex(24)}"


def secret_name(user: str) -> str:
    """Return the name of a user's Secret."""
    return f"pumice-nats-{user}"


def manifests(*, namespace: str, cluster: str) -> list[dict[str, Any]]:
    """Return a Secret with fresh credentials for each user of `cluster`."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": secret_name(user),
                "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "pumice"},
            },
            "type": "Opaque",
            "stringData": {"username": user, "password": password()},
        }
        for user in sorted(permissions(cluster))
    ]


def main(argv: Sequence[str]) -> None:
    """Print the Secrets."""
    parser = argparse.ArgumentParser(prog="pumice.deploy.nats_secrets", description=__doc__)
    parser.add_argument("--namespace", default="pumice-system")
    parser.add_argument("--cluster", default="main", help="PUMICE_CLUSTER of the services")
    given = parser.parse_args(argv)
    documents = manifests(namespace=given.namespace, cluster=given.cluster)
    sys.stdout.write(yaml.safe_dump_all(documents, sort_keys=False))


if __name__ == "__main__":
    main(sys.argv[1:])
