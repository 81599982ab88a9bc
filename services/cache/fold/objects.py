"""One object as the cache holds it: its body as it is published, and a digest to compare by.

The body carries the object's resourceVersion, because readers want it; the digest leaves it out,
because a new version alone (a field that nobody reads, a managed field) is no news.
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec

_encoder: Final = msgspec.json.Encoder()
_DIGEST_BYTES: Final = 8


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object that the API server shows."""

    uid: str
    rv: str
    body: bytes
    digest: bytes


class Said(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the stream says of an object; an empty digest: not known, to be said again."""

    uid: str
    rv: str
    digest: bytes = b""


def held(view: Any) -> tuple[str, Held]:  # noqa: ANN401 - the view of any kind
    """Return (key, object) of a view."""
    metadata = view.metadata
    body = _encoder.encode(view)
    rv = metadata.resource_version
    return metadata.key, Held(uid=metadata.uid, rv=rv, body=body, digest=digest(body, rv))


def digest(body: bytes, rv: str) -> bytes:
    """Return what two bodies have in common that differ at most in their resourceVersion.

    The first occurrence is the object's own: in the views it precedes all free text.
    """
    same = body.replace(b'"resourceVersion":"%s"' % rv.encode(), b"", 1) if rv else body
    return blake2b(same, digest_size=_DIGEST_BYTES).digest()


def older(rv: str, than: str) -> bool:
    """Tell whether a version of an object precedes another version of it, or of its namesake.

    Versions are compared as the numbers that etcd makes of them (KEP-5504). Where one is no number
    nothing is older: the order of arrival counts.
    """
    return rv.isdecimal() and than.isdecimal() and int(rv) < int(than)
