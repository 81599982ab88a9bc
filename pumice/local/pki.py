"""Certificates of one local control plane: made when its data directory is new, kept with it.

One authority signs everything but the certificate with which the API server passes requests on to
others: it has an authority of its own, so that no other certificate can speak for the users. The
stack listens on the loopback alone.
"""

from pathlib import Path
from typing import Final

import msgspec

from pumice.local.authority import Authority, Pair, pair, write_signing_key
from pumice.local.files import write_private
from pumice.local.ports import LOOPBACK

_SERVER_HOSTS: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    LOOPBACK,
    "10.96.0.1",
)


class Pki(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the parts need to trust each other."""

    ca: Path
    server: Pair
    """For the API server and etcd: valid for the loopback."""
    admin: Pair
    """Client certificate of the group system:masters, for the person at the terminal."""
    etcd_client: Pair
    service_account_key: Path
    front_proxy_ca: Path
    front_proxy: Pair
    """Client certificate of the API server towards those that it passes requests on to."""


FRONT_PROXY: Final = "front-proxy-client"
"""Name of that certificate's files, and its common name."""
REQUEST_HEADERS: Final = {
    "allowed-names": FRONT_PROXY,
    "username-headers": "X-Remote-User",
    "uid-headers": "X-Remote-Uid",
    "group-headers": "X-Remote-Group",
    "extra-headers-prefix": "X-Remote-Extra-",
}
"""How an API server says to those behind it who it is, and who asks; as flags are called behind
`--requestheader-`."""


def ensure(directory: Path) -> Pki:
    """Return the certificates in `directory`, made now if they are not all there."""
    pki = Pki(
        ca=directory / "ca.crt",
        server=pair(directory, "server"),
        admin=pair(directory, "admin"),
        etcd_client=pair(directory, "etcd-client"),
        service_account_key=directory / "service-account.key",
        front_proxy_ca=directory / "front-proxy-ca.crt",
        front_proxy=pair(directory, FRONT_PROXY),
    )
    if not pki.service_account_key.exists():  # written last
        _make(pki)
    if not pki.front_proxy.key.exists():  # likewise; a directory of an older version has none
        authority = Authority("pumice-local-front-proxy")
        write_private(pki.front_proxy_ca, authority.certificate)
        authority.issue(pki.front_proxy, FRONT_PROXY)
    return pki


def _make(pki: Pki) -> None:
    authority = Authority("pumice-local")
    write_private(pki.ca, authority.certificate)
    authority.issue(pki.server, "kube-apiserver", hosts=_SERVER_HOSTS)
    authority.issue(pki.admin, "pumice-admin", groups=("system:masters",))
    authority.issue(pki.etcd_client, "etcd-client")
    write_signing_key(pki.service_account_key)
