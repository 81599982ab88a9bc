"""Records on the stream LEASE: who holds a lease, and which processes are alive."""

import msgspec

from shared.contracts.versions import CURRENT


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a lease; renewed by compare-and-set."""

    v: int = CURRENT
    holder: str
    """Instance name, or empty when released."""
    renewals: int
    time: float
    present: bool = False
    """Whether the holder listens on its presence subject for as long as it is connected."""


class ServiceReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A live process and the versions that it reads."""

    v: int = CURRENT
    service: str
    instance: str
    accepts: tuple[int, ...]
    time: float
