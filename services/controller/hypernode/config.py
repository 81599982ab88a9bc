"""The configuration of topology discovery: key `volcano-controller.conf` of a ConfigMap (H02).

Volcano's form:

    networkTopologyDiscovery:
      - source: label
        enabled: true
        config:
          networkTopologyTypes:
            roce:                             # from the top of the network to the bottom
              - nodeLabel: example.com/spine
              - nodeLabel: example.com/leaf
              - nodeLabel: kubernetes.io/hostname

A user who may write this ConfigMap makes the controller read a Secret and send it somewhere. So
the Secret is one of the ConfigMap's own namespace, and only hosts that a flag names are asked
(`DiscoveryBounds`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from services.controller.config_text import (
    BadConfigError,
    Wire,
    converted,
    decoded,
    is_object_name,
    seconds,
)
from services.controller.hypernode.discovery import LABEL_SOURCE, UFM_SOURCE, clean

KEY: Final = "volcano-controller.conf"
SOURCES: Final = (LABEL_SOURCE, UFM_SOURCE)
_TYPE_MAX: Final = 20
_ADDRESS: Final = re.compile(r"https?://[^/\s@]+(/\S*)?")
_ANY: Final = "*"


class Level(Wire, frozen=True, kw_only=True):
    """One level of a network: the label whose values tell its parts apart."""

    node_label: str


class LabelConfig(Wire, frozen=True, kw_only=True):
    """Settings of the source `label`: networks by name, each from its top to its bottom."""

    network_topology_types: dict[str, tuple[Level, ...]]


class UfmConfig(Wire, frozen=True, kw_only=True):
    """Settings of the source `ufm`."""

    endpoint: str
    insecure_skip_verify: bool = False


class SecretRef(Wire, frozen=True, kw_only=True):
    """The Secret with `username` and `password`."""

    name: str
    namespace: str = ""


class SourceCredentials(Wire, frozen=True, kw_only=True):
    """Credentials for a source."""

    secret_ref: SecretRef


class TopologySource(Wire, frozen=True, kw_only=True):
    """One source of topology."""

    source: str
    enabled: bool = False
    interval: str = "1h"
    credentials: SourceCredentials | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class _File(Wire, frozen=True, kw_only=True):
    network_topology_discovery: tuple[TopologySource, ...] = ()


class UfmSource(msgspec.Struct, frozen=True, kw_only=True):
    """A fabric manager to ask (H03)."""

    endpoint: str
    insecure_skip_verify: bool = False
    secret: str
    """`namespace/name` of the Secret with user and password."""
    interval_s: float


class DiscoveryBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of what a configuration may access."""

    namespace: str = ""
    """Of the ConfigMap, and so of the Secrets that it may name."""
    hosts: Collection[str] = ()
    """Hosts, with or without a port, that may be asked; `*` for any."""

    def may_ask(self, endpoint: str) -> bool:
        """Tell whether an endpoint is one of the hosts."""
        parts = urlsplit(endpoint)
        allowed = {host.lower() for host in self.hosts}
        return bool({_ANY, parts.hostname, parts.netloc.lower()} & allowed)


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """The sources to discover from, and how often."""

    types: Mapping[str, tuple[str, ...]] | None = None
    """Networks by labels of nodes: name → labels from the top to the bottom, without the last
    one, which names single hosts (H04 ⚠). None: that source is off, and nothing of it is touched.
    """
    ufm: UfmSource | None = None
    """The fabric manager to ask; None: that source is off, and nothing of it is touched."""


def parse(text: str, bounds: DiscoveryBounds) -> Discovery:
    """Return the discovery of a configuration; BadConfigError names the invalid field."""
    file = decoded(text, KEY, _File)
    enabled = [
        (n, one) for n, one in enumerate(file.network_topology_discovery) if _checked(n, one)
    ]
    by_name: dict[str, tuple[int, TopologySource]] = {}
    for number, one in enabled:
        if one.source in by_name:
            raise BadConfigError(
                f"networkTopologyDiscovery[{number}].source: {one.source!r} is there twice"
            )
        by_name[one.source] = (number, one)
    return Discovery(
        types=_types(*by_name[LABEL_SOURCE]) if LABEL_SOURCE in by_name else None,
        ufm=_ufm(*by_name[UFM_SOURCE], bounds) if UFM_SOURCE in by_name else None,
    )


def _checked(number: int, one: TopologySource) -> bool:
    """Return whether a source is enabled; BadConfigError when it is none."""
    path = f"networkTopologyDiscovery[{number}]"
    if one.source not in SOURCES:
        known = ", ".join(SOURCES)
        raise BadConfigError(f"{path}.source: {one.source!r} is none of {known}")
    if seconds(one.interval, f"{path}.interval") <= 0.0:
        raise BadConfigError(f"{path}.interval: {one.interval!r} is no time to wait")
    return one.enabled


def _types(number: int, one: TopologySource) -> dict[str, tuple[str, ...]]:
    path = f"networkTopologyDiscovery[{number}].config"
    config = converted(one.config, path, LabelConfig)
    found = {}
    for name, levels in config.network_topology_types.items():
        place = f"{path}.networkTopologyTypes.{name}"
        if not 0 < len(name) <= _TYPE_MAX:
            raise BadConfigError(f"{place}: a name has 1 to {_TYPE_MAX} characters")
        if not is_object_name(f"hypernode-{clean(name)}-tier1"):
            raise BadConfigError(f"{place}: its HyperNodes cannot be called {clean(name)!r}")
        found[name] = tuple(_labels(place, [level.node_label for level in levels]))[:-1]
    return found


def _ufm(number: int, one: TopologySource, bounds: DiscoveryBounds) -> UfmSource:
    path = f"networkTopologyDiscovery[{number}]"
    config = converted(one.config, f"{path}.config", UfmConfig)
    endpoint = config.endpoint if "://" in config.endpoint else f"https://{config.endpoint}"
    if not _ADDRESS.fullmatch(endpoint):
        raise BadConfigError(f"{path}.config.endpoint: {config.endpoint!r} is no http(s) address")
    if not bounds.may_ask(endpoint):
        raise BadConfigError(
            f"{path}.config.endpoint: {config.endpoint!r} is not among the hosts that may be asked"
            " (--topology-hosts)"
        )
    if one.credentials is None:
        raise BadConfigError(f"{path}.credentials.secretRef is missing")
    ref = one.credentials.secret_ref
    if ref.namespace not in {"", bounds.namespace}:
        raise BadConfigError(
            f"{path}.credentials.secretRef.namespace: {ref.namespace!r} is not the ConfigMap's own,"
            f" {bounds.namespace!r}"
        )
    return UfmSource(
        endpoint=endpoint,
        insecure_skip_verify=config.insecure_skip_verify,
        secret=f"{bounds.namespace}/{ref.name}",
        interval_s=seconds(one.interval, f"{path}.interval"),
    )


def _labels(place: str, labels: list[str]) -> Iterable[str]:
    if len(set(labels)) < len(labels):
        raise BadConfigError(f"{place}: a label is there twice")
    for number, label in enumerate(labels):
        if not label:
            raise BadConfigError(f"{place}[{number}].nodeLabel is empty")
        yield label
