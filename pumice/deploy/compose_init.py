"""Makes certificates, passwords and configuration of the Compose stack; runs before its parts.

Each part mounts one folder below the given one, a volume of its own, so that no container can read
another's credentials. Everything is made once; the NATS configuration is written again at each
start, with the same passwords, because a newer image may need other permissions.

The services are the ServiceAccounts of k8s/base on the API server, by client certificates in their
names: the very roles that hold in a cluster hold here.
"""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pumice.deploy import nats_config
from pumice.deploy.nats_accounts import ADMIN
from pumice.deploy.nats_secrets import password
from pumice.local.authority import Authority, Pair, pair, write_signing_key
from pumice.local.files import write_private
from pumice.local.kubeconfig import KubeconfigEntry, write_kubeconfig
from shared.contracts.permissions import permissions

CLUSTER: Final = "compose"
"""PUMICE_CLUSTER of the services in docker-compose.yml."""
NAMESPACE: Final = "pumice-system"
API_SERVER: Final = "https://kube-apiserver:6443"
API_PORT: Final = 6443
"""Port of the API server on the host, unless PUMICE_API_PORT names another."""
ACCOUNTS: Final = ("admission", "binder", "cache", "controller", "visibility")
"""Services that talk to the API server."""
SERVICES: Final = (*ACCOUNTS, "accounting", "declarer", "scheduler")
SEALERS: Final = ("cache", "controller")
"""Services that share the key of STATE."""
FRONT_PROXY: Final = "front-proxy-client"
"""Name by which the API server is known to what it passes requests on to."""
USER_ID: Final = 10001
"""User of the image's processes."""

_HOSTS: Final = (
    "kube-apiserver",
    "etcd",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "127.0.0.1",
    "10.96.0.1",
)
_ADMINS: Final = ("system:masters",)

WRITTEN: Final = ("watchdog", "accounting-data")
"""Where volumes that services write are mounted, which begin as root's."""


def make_identities(root: Path) -> None:
    """Write certificates and kubeconfigs below `root`, unless an earlier start has."""
    plane = root / "control-plane"
    last = plane / "service-account.key"
    if last.exists():
        if not (plane / "front-proxy-ca.crt").exists():
            sys.exit("error: these credentials are of an older version: docker compose down -v")
        return
    authority = Authority("pumice-compose")
    for folder in ("control-plane", "admin", "health", *ACCOUNTS):
        write_private(root / folder / "ca.crt", authority.certificate)
    authority.issue(pair(plane, "server"), "kube-apiserver", hosts=_HOSTS)
    authority.issue(pair(plane, "etcd-client"), "etcd-client")
    parts = pair(plane, "parts")
    authority.issue(parts, "pumice-parts", groups=_ADMINS)
    _kubeconfig(plane / "parts.kubeconfig", parts)
    admin = pair(root / "admin", "admin")
    authority.issue(admin, "pumice-admin", groups=_ADMINS)
    _kubeconfig(root / "admin" / "kubeconfig", admin)
    front_proxy = Authority("pumice-compose-front-proxy")
    write_private(plane / "front-proxy-ca.crt", front_proxy.certificate)
    front_proxy.issue(pair(plane, "front-proxy-client"), FRONT_PROXY)
    for service in ACCOUNTS:
        account = pair(root / service, service)
        authority.issue(
            account,
            f"system:serviceaccount:{NAMESPACE}:pumice-{service}",
            groups=("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"),
        )
        _kubeconfig(root / service / "kubeconfig", account)
    write_signing_key(last)


def make_kubeconfig_for_host(root: Path, port: int) -> None:
    """Write the administrator's kubeconfig for the host, whose port may have changed."""
    path = root / "admin" / "kubeconfig-for-host"
    _kubeconfig(path, pair(root / "admin", "admin"), server=f"https://127.0.0.1:{port or API_PORT}")


def make_nats_users(root: Path) -> None:
    """Write the server's configuration, and each user's password into the user's own folder."""
    path = root / "nats" / "passwords.json"
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    users = (ADMIN, *sorted(permissions(CLUSTER)))
    passwords = {user: known.get(user) or password() for user in users}
    write_private(path, json.dumps(passwords, indent=2))
    server = nats_config.NatsServerConfig(name="pumice-compose", cluster=CLUSTER, store_dir="/data")
    write_private(root / "nats" / "nats.conf", nats_config.render(server, passwords))
    for user in passwords.keys() & set(SERVICES):
        write_private(root / user / "nats-password", passwords[user])
    kept_key = root / "nats" / "state-key"
    state_key = kept_key.read_text() if kept_key.exists() else secrets.token_hex(32)
    write_private(kept_key, state_key)
    for service in SEALERS:
        write_private(root / service / "state-key", state_key)
    for user in users:
        write_private(root / "admin" / f"nats-password-{user}", passwords[user])


def hand_over(root: Path) -> None:
    """Give the folders of our own processes to their user; the other parts run as root."""
    for folder in ("admin", "health", *SERVICES, *WRITTEN):
        directory = root / folder
        if folder in WRITTEN and not directory.exists():
            continue  # no volume is mounted there
        directory.chmod(0o700)
        for path in (directory, *directory.iterdir()):
            os.chown(path, USER_ID, USER_ID)


def _kubeconfig(path: Path, client: Pair, *, server: str = API_SERVER) -> None:
    entry = KubeconfigEntry(
        server=server, ca=path.parent / "ca.crt", client=client, user=path.parent.name
    )
    write_kubeconfig(path, entry)


def main(argv: Sequence[str]) -> None:
    """Make everything below the folder that is named."""
    parser = argparse.ArgumentParser(prog="pumice.deploy.compose_init")
    parser.add_argument("folder", type=Path)
    root: Path = parser.parse_args(argv).folder
    make_identities(root)
    make_kubeconfig_for_host(root, int(os.environ.get("PUMICE_API_PORT", API_PORT)))
    make_nats_users(root)
    hand_over(root)


if __name__ == "__main__":
    main(sys.argv[1:])
