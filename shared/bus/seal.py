"""Encrypts the texts of users in jobs: the cache seals them, the controller alone opens them.

A pod template holds all that its author put into it: values of environment variables, arguments of
plugins such as a private key. The controller needs it verbatim to make pods; no other reader of
STATE needs it. AES-256-GCM under a key that those two share keeps it from the bus, its files and
every other service, without a request to the API server per job (ADR 18).
"""

import base64
import os
import zlib
from hashlib import sha256
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shared.api.kinds import CRONJOB, JOB, JOBFLOW, JOBTEMPLATE
from shared.contracts.messages import Fact, Op
from shared.contracts.versions import ContractError

SEALED: Final = frozenset(kind.token for kind in (JOB, CRONJOB, JOBTEMPLATE, JOBFLOW))
"""Kinds that hold what users wrote for pods, by token."""
_NONCE: Final = 12
_FASTEST: Final = 1


class _Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sealed: bytes


_closed: Final = msgspec.json.Decoder(_Closed)


class Seal:
    """Closes and opens the bodies of facts; without a secret they travel as they are."""

    def __init__(self, secret: str) -> None:
        self._cipher = AESGCM(sha256(b"pumice state " + secret.encode()).digest())
        self._has_key = bool(secret)

    def close(self, fact: Fact) -> Fact:
        """Return the fact with its body sealed, if it is of a kind that is."""
        if not self._has_key or fact.kind not in SEALED or fact.op is not Op.PUT:
            return fact
        nonce = os.urandom(_NONCE)
        deflated = zlib.compress(bytes(fact.body), _FASTEST)
        sealed = nonce + self._cipher.encrypt(nonce, deflated, _bound_to(fact))
        body = msgspec.json.encode({"sealed": base64.b64encode(sealed).decode()})
        return msgspec.structs.replace(fact, body=msgspec.Raw(body))

    def open(self, fact: Fact) -> Fact:
        """Return the fact with its body readable. Raises ContractError without the right key."""
        if fact.kind not in SEALED or not bytes(fact.body).startswith(b'{"sealed":'):
            return fact
        try:
            sealed = _closed.decode(fact.body).sealed
            deflated = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound_to(fact))
            body = zlib.decompress(deflated)
        except (InvalidTag, ValueError, zlib.error, msgspec.DecodeError) as exc:
            text = "sealed with another key than --state-key" if self._has_key else "sealed"
            raise ContractError(f"body is {text}; the cache and its reader share one") from exc
        return msgspec.structs.replace(fact, body=msgspec.Raw(body))


def _bound_to(fact: Fact) -> bytes:
    """Return what a sealed body belongs to: it cannot be moved to another object or version."""
    return f"{fact.kind} {fact.key} {fact.uid} {fact.rv}".encode()
