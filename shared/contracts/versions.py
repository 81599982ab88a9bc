"""Versions of the wire contract: which a reader accepts and which a writer produces.

Every message carries `v`. A reader accepts the current version and the one before it. A writer
produces the current version only once every live reader announces that it accepts it, so that
services can be upgraded one process at a time.
"""

from collections.abc import Iterable
from typing import Final

CURRENT: Final = 1
"""The version that this code writes when every live reader accepts it."""

ACCEPTED: Final = frozenset({CURRENT, CURRENT - 1} - {0})
"""Versions that this code reads."""


class ContractError(ValueError):
    """A payload that breaks the contract; the text says how."""


class UnknownVersion(ContractError):  # noqa: N818 - reads as the fact it states
    """A version that this code does not know: to be delayed and counted, never dropped."""

    def __init__(self, version: int) -> None:
        super().__init__(f"message version {version}: this process reads {sorted(ACCEPTED)}")
        self.version = version


def version_to_write(announced: Iterable[frozenset[int]]) -> int:
    """Return the highest version that this code writes and every live reader accepts.

    `announced` holds one set of accepted versions per live reader; without readers the current
    version is written. Raises ContractError when a reader shares no version with this code.
    """
    common = frozenset(ACCEPTED)
    for accepted in announced:
        common &= accepted
    if not common:
        raise ContractError("a live reader accepts none of the versions that this process writes")
    return max(common)
