"""Versions of the wire contract: those that a reader accepts, and the one that a writer uses.

Every message carries `v`. Each process announces which versions it accepts
(`ServiceReplica.accepts`). A process is not ready while a live one does not accept what it would
write, so that a rollout stops before the old replicas are gone. The first change of a message that
old readers cannot read adds version 2 here, and a writer of both.
"""

from typing import Final

CURRENT: Final = 1
"""The version that this code writes."""

ACCEPTED: Final = frozenset({CURRENT})
"""Versions that this code reads."""


class ContractError(ValueError):
    """A payload that breaks the contract; the text says how."""


class UnknownVersion(ContractError):  # noqa: N818 - reads as the fact it states
    """A version that this code does not know: to be delayed and counted, never dropped."""

    def __init__(self, version: int) -> None:
        super().__init__(f"message version {version}: this process reads {sorted(ACCEPTED)}")
        self.version = version
