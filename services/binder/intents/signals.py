"""The HTTP call by which a pod learns of its eviction: to the pod itself, and to nothing else.

The annotation names port and path only (`http://:8080/checkpoint`). The address is the pod's IP. A
pod on the network of its node gets no call: its address is the node's.
"""

import re
from ipaddress import ip_address
from typing import Final

import msgspec

from shared.api import keys

_FORM: Final = re.compile(r"http://:([0-9]{1,5})(/[!-~]*)?")
_LETTERS_MAX: Final = 256
_PORT_MAX: Final = 65_535


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    host_network: bool = False


class _Status(msgspec.Struct, frozen=True):
    pod_ip: str = msgspec.field(default="", name="podIP")


class _Pod(msgspec.Struct, frozen=True):
    """What the call goes by; no fact about pods on the bus has their addresses."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decoder: Final = msgspec.json.Decoder(_Pod)


def signal_of(body: bytes) -> str:
    """Return the URL that a pod, as the API server sends it, wants to be called at; "" for none."""
    pod = _decoder.decode(body)
    return signal_url(
        pod.metadata.annotations.get(keys.CHECKPOINT_SIGNAL, ""),
        pod_ip="" if pod.spec.host_network else pod.status.pod_ip,
    )


def signal_url(stated: str, *, pod_ip: str) -> str:
    """Return the URL of an annotation at a pod's address, "" where one of them is not usable."""
    match = _FORM.fullmatch(stated) if len(stated) <= _LETTERS_MAX else None
    if match is None or not 0 < int(match[1]) <= _PORT_MAX:
        return ""
    try:
        address = ip_address(pod_ip)
    except ValueError:
        return ""
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
        or "%" in pod_ip
    ):
        return ""
    host = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IPv6
    return f"http://{host}:{int(match[1])}{match[2] or '/'}"
