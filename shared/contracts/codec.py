"""Messages to bytes and back.

A payload is JSON; one larger than `COMPRESS_FROM` bytes is deflated when that makes it smaller.
The two differ in their first byte (`{` or zlib's `x`), so that the `nats` command line
shows ordinary messages as text.
"""

import zlib
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from shared.contracts import leases, reports
from shared.contracts import messages as m
from shared.contracts.usage import QueueUsage
from shared.contracts.versions import ACCEPTED, ContractError, UnknownVersion
from shared.model.numbers import whole

COMPRESS_FROM: Final = 16 * 1024
"""Bytes from which compression pays for its time (a pod's fact has one to four KiB)."""
INFLATED_MAX: Final = 64 * 1024 * 1024
"""Upper bound of an inflated payload: a message that claims more is refused."""
REASON_MAX: Final = 500
"""Maximum length of a decode error: it may repeat names of the payload."""

LONGEST_DEFERRAL_S: Final = 10
DEFERRAL: Final = "Pumice-Deferral"
"""Header of a desired status: seconds for which its first write may wait for a newer one (ADR 35).

It is a header so that a binder that does not know it may ignore it and write at once.
"""

_encoder: Final = msgspec.json.Encoder()
_M = TypeVar("_M")


class _Envelope(msgspec.Struct, frozen=True):
    v: int


_envelope: Final = msgspec.json.Decoder(_Envelope)
_fact: Final = msgspec.json.Decoder(m.Fact)
_marker: Final = msgspec.json.Decoder(m.Marker)
_leader: Final = msgspec.json.Decoder(m.LeaderRecord)
_command: Final[msgspec.json.Decoder[m.Command]] = msgspec.json.Decoder(m.Command)
_desired: Final[msgspec.json.Decoder[m.Desired]] = msgspec.json.Decoder(m.Desired)
_outcome: Final = msgspec.json.Decoder(m.Outcome)
_waiting: Final = msgspec.json.Decoder(m.WaitExplained)
_usage: Final = msgspec.json.Decoder(QueueUsage)
_report_request: Final = msgspec.json.Decoder(reports.ReportRequest)
_report_reply: Final = msgspec.json.Decoder(reports.ReportReply)
_lease: Final = msgspec.json.Decoder(leases.LeaseRecord)
_member: Final = msgspec.json.Decoder(leases.ServiceReplica)


def encode(message: msgspec.Struct) -> bytes:
    """Return the payload of any message of `shared.contracts.messages`."""
    return pack(_encoder.encode(message))


def pack(raw: bytes) -> bytes:
    """Return `raw` deflated if it is large and becomes smaller, else as it is."""
    if len(raw) < COMPRESS_FROM:
        return raw
    deflated = zlib.compress(raw, 1)
    return deflated if len(deflated) < len(raw) else raw


def unpack(payload: bytes) -> bytes:
    """Return the JSON of a payload. Raises ContractError when it cannot be inflated."""
    if not payload.startswith(b"x"):
        return payload
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(payload, INFLATED_MAX)
    except zlib.error as exc:
        raise ContractError(f"payload cannot be inflated: {exc}") from exc
    if inflater.unconsumed_tail or not inflater.eof:
        raise ContractError(f"payload inflates to more than {INFLATED_MAX} bytes or is cut off")
    return raw


def _decode(decoder: "msgspec.json.Decoder[_M]", payload: bytes) -> _M:
    raw = unpack(payload)
    try:
        message = decoder.decode(raw)
    except RecursionError as exc:
        raise ContractError("payload is nested too deeply") from exc
    except ValueError as exc:  # msgspec raises no error of its own for invalid UTF-8
        _refuse_unknown_version(raw)
        raise ContractError(str(exc)[:REASON_MAX]) from exc
    version: int = message.v  # type: ignore[attr-defined]
    if version not in ACCEPTED:
        raise UnknownVersion(version)
    return message


def _refuse_unknown_version(raw: bytes) -> None:
    """Raise UnknownVersion when the version explains why a payload cannot be decoded."""
    try:
        version = _envelope.decode(raw).v
    except ValueError:
        return
    if version not in ACCEPTED:
        raise UnknownVersion(version)


def decode_fact(payload: bytes) -> m.Fact:
    """Decode a fact; raises ContractError or UnknownVersion, as all functions here do."""
    return _decode(_fact, payload)


def decode_marker(payload: bytes) -> m.Marker:
    """Decode the cache's marker."""
    return _decode(_marker, payload)


def decode_leader(payload: bytes) -> m.LeaderRecord:
    """Decode a leader's announcement."""
    return _decode(_leader, payload)


def decode_command(payload: bytes) -> m.Command:
    """Decode an intent for the binder; unknown fields are refused."""
    return _decode(_command, payload)


def decode_desired(payload: bytes) -> m.Desired:
    """Decode a desired status; unknown fields are refused."""
    return _decode(_desired, payload)


def decode_outcome(payload: bytes) -> m.Outcome:
    """Decode the outcome of a command."""
    return _decode(_outcome, payload)


def decode_waiting(payload: bytes) -> m.WaitExplained:
    """Decode the explanation of a gang's wait."""
    return _decode(_waiting, payload)


def decode_usage(payload: bytes) -> QueueUsage:
    """Decode the decayed usage of a queue's users."""
    return _decode(_usage, payload)


def decode_report_request(payload: bytes) -> reports.ReportRequest:
    """Decode a query to accounting."""
    return _decode(_report_request, payload)


def decode_report_reply(payload: bytes) -> reports.ReportReply:
    """Decode a reply of accounting."""
    return _decode(_report_reply, payload)


def decode_lease(payload: bytes) -> leases.LeaseRecord:
    """Decode a lease record."""
    return _decode(_lease, payload)


def decode_member(payload: bytes) -> leases.ServiceReplica:
    """Decode a process's announcement."""
    return _decode(_member, payload)


def deferral(seconds: int) -> dict[str, str]:
    """Return the headers of a desired status whose first write may wait that long."""
    return {DEFERRAL: str(seconds)} if seconds else {}


def deferral_s(headers: Mapping[str, str] | None) -> int:
    """Return for how many seconds a desired status may wait; 0 without the header."""
    stated = whole((headers or {}).get(DEFERRAL, ""))
    return min(stated or 0, LONGEST_DEFERRAL_S)
