"""Objects as the cache observes and publishes them: a JSON body, and a digest for comparison.

The body includes the resourceVersion, because readers need it. The digest ignores it: a new version
alone (a changed managed field, or a field that no service reads) is not worth a publication.
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec

from shared.api import keys
from shared.api.core import Pod, PodPhase, PodStatus
from shared.api.kinds import JOB, NATIVEPODGROUP, POD, PODGROUP
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
"""Annotations that a tombstone keeps, because the job controller reads them."""
COPIES: Final = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        "kapp.k14s.io/original",
        "objectset.rio.cattle.io/applied",
        "banzaicloud.com/last-applied",
    )
)
"""Annotations with a copy of the whole applied object, removed before publication."""


class ObservedObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object as last observed in the API server."""

    uid: str
    rv: str
    body: bytes
    digest: bytes
    succeeded_body: bytes = b""
    """Body of a pod that succeeded before its deletion was requested; empty for all others."""


class Published(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An object as STATE has it. An empty digest means unknown: it is published again."""

    uid: str
    rv: str
    digest: bytes = b""
    succeeded_body: bytes = b""
    """Like `ObservedObject.done`, for an object that was deleted while no cache watched."""


def observed_object(view: Any) -> tuple[str, ObservedObject]:  # noqa: ANN401 - the view of any kind
    """Return the key and the observed object of a decoded view."""
    view = _without_copies(view)
    metadata = view.metadata
    body = _encoder.encode(view)
    rv = metadata.resource_version
    succeeded_body = body if _succeeded_before_deletion(view) else b""
    seen = digest(body, rv)
    return metadata.key, ObservedObject(
        uid=metadata.uid, rv=rv, body=body, digest=seen, succeeded_body=succeeded_body
    )


def tombstone_body_of(body: bytes) -> bytes:
    """Return the tombstone body of a published pod that succeeded; empty for all others."""
    if _SUCCEEDED not in body:
        return b""
    return tombstone_body(body) if _succeeded_before_deletion(_pods.decode(body)) else b""


def tombstone_body(succeeded_body: bytes) -> bytes:
    """Return the tombstone body of a succeeded pod: its owners, job annotations and phase."""
    pod = _pods.decode(succeeded_body)
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
    if fact.kind in {PODGROUP.token, NATIVEPODGROUP.token}:
        return fact.key
    if fact.kind == JOB.token:
        return podgroup_of(fact.key, fact.uid)
    if fact.kind != POD.token or fact.op is not Op.PUT:
        return ""
    group = _pods.decode(fact.body).group_name
    return f"{fact.key.rpartition('/')[0]}/{group}" if group else ""


def _succeeded_before_deletion(view: Any) -> bool:  # noqa: ANN401 - the view of any kind
    """Return whether a job's pod succeeded before its deletion was requested."""
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
    """Return a hash of a body without its resourceVersion.

    Only the first occurrence is removed. In our views it precedes all free text, so it is the
    object's own.
    """
    same = body.replace(b'"resourceVersion":"%s"' % rv.encode(), b"", 1) if rv else body
    return blake2b(same, digest_size=_DIGEST_BYTES).digest()


def older(rv: str, than: str) -> bool:
    """Return whether one resourceVersion of a name precedes another.

    Versions are compared as numbers (KEP-5504). If one is not a number the result is False: the
    order of arrival decides.
    """
    return rv.isdecimal() and than.isdecimal() and int(rv) < int(than)


def reached(rv: str, version: str) -> bool:
    """Return whether `rv` is at least `version`; False if one of them is not a number."""
    return rv.isdecimal() and version.isdecimal() and int(rv) >= int(version)
