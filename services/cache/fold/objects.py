"""One object as the cache holds it: its body as it is published, and a digest to compare by.

The body carries the object's resourceVersion, because readers want it; the digest leaves it out,
because a new version alone (a field that no service reads, a managed field) is no news.
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec

from shared.api import keys
from shared.api.core import Pod, PodPhase, PodStatus
from shared.api.kinds import JOB, POD, PODGROUP
from shared.api.meta import ObjectMeta
from shared.api.scheduling import podgroup_of
from shared.contracts.messages import Fact, Op

_encoder: Final = msgspec.json.Encoder()
_DIGEST_BYTES: Final = 8
_pods: Final = msgspec.json.Decoder(Pod)
_SUCCEEDED: Final = PodPhase.SUCCEEDED.encode()
_MARKS: Final = frozenset(
    (keys.JOB_NAME, keys.TASK_SPEC, keys.TASK_INDEX, keys.JOB_VERSION, keys.OUT_OF_SYNC)
)
"""Annotations by which a job knows its pod, and what it had decided about it."""
COPIES: Final = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        "kapp.k14s.io/original",
        "objectset.rio.cattle.io/applied",
        "banzaicloud.com/last-applied",
    )
)
"""Annotations in which tools keep the object as it was applied, values of variables included."""


class ShownObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object that the API server shows."""

    uid: str
    rv: str
    body: bytes
    digest: bytes
    done: bytes = b""
    """Of a pod that has succeeded before its deletion was asked for: the body that says so."""


class Published(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object as the stream has it; an empty digest: not known, to be published again."""

    uid: str
    rv: str
    digest: bytes = b""
    done: bytes = b""
    """As `Held.done`, where the stream alone knows it: the object went while no cache watched."""


def held(view: Any) -> tuple[str, ShownObject]:  # noqa: ANN401 - the view of any kind
    """Return (key, object) of a view."""
    view = _without_copies(view)
    metadata = view.metadata
    body = _encoder.encode(view)
    rv = metadata.resource_version
    done = body if _is_done(view) else b""
    seen = digest(body, rv)
    return metadata.key, ShownObject(uid=metadata.uid, rv=rv, body=body, digest=seen, done=done)


def done_of(body: bytes) -> bytes:
    """Return what is to be kept of a published pod that has succeeded; empty for all others."""
    if _SUCCEEDED not in body:
        return b""
    return remains(body) if _is_done(_pods.decode(body)) else b""


def remains(done: bytes) -> bytes:
    """Return what a tombstone says of a pod that has succeeded: whose it was, and that it has."""
    pod = _pods.decode(done)
    meta = pod.metadata
    marks = {k: v for k, v in meta.annotations.items() if k in _MARKS}
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        annotations=marks,
        owner_references=meta.owner_references,
    )
    return _encoder.encode(Pod(metadata=kept, status=PodStatus(phase=PodPhase.SUCCEEDED)))


def cause_of(fact: Fact) -> str:
    """Return the key of the PodGroup that a fact concerns, "" if there is none."""
    if fact.kind == PODGROUP.token:
        return fact.key
    if fact.kind == JOB.token:
        return podgroup_of(fact.key, fact.uid)
    if fact.kind != POD.token or fact.op is not Op.PUT:
        return ""
    group = _pods.decode(fact.body).metadata.annotations.get(keys.GROUP_NAME, "")
    return f"{fact.key.rpartition('/')[0]}/{group}" if group else ""


def _is_done(view: Any) -> bool:  # noqa: ANN401 - the view of any kind
    """Tell whether a job's pod has succeeded, before its deletion was asked for."""
    return (
        isinstance(view, Pod)
        and view.status.phase == PodPhase.SUCCEEDED
        and view.metadata.deletion_timestamp is None
        and keys.JOB_NAME in view.metadata.annotations
    )


def _without_copies(view: Any) -> Any:  # noqa: ANN401 - the view of any kind
    """Return a view without annotations that hold another copy of the whole object."""
    annotations = view.metadata.annotations
    if COPIES.isdisjoint(annotations):
        return view
    kept = {key: value for key, value in annotations.items() if key not in COPIES}
    metadata = msgspec.structs.replace(view.metadata, annotations=kept)
    return msgspec.structs.replace(view, metadata=metadata)


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


def reached(rv: str, version: str) -> bool:
    """Tell whether `rv` is `version` or one after it, which is known of numbers only."""
    return rv.isdecimal() and version.isdecimal() and int(rv) >= int(version)
