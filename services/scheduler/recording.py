"""The facts of one cycle for a dump; cycles that are not recorded pay nothing.

The cluster state keeps what rules read, not the objects. STATE has the last fact of every object,
but goes on while it is read. So a recording has two halves: STATE read once more from its
beginning, and the facts that cycles fold after the request. Once they have folded as far as was
read, the last fact of each object over both halves is exactly what the cluster state was made of.
"""

from collections.abc import Sequence

from services.scheduler import dump
from shared.contracts.messages import Fact


class Recording:
    """One recording, from the request to the cycle that is dumped."""

    def __init__(self, folded_seq: int) -> None:
        """Begin when facts up to `folded_seq` of STATE have been folded."""
        self._folded_seq = folded_seq
        self._read: list[Fact] | None = None
        self._read_seq = 0
        self._folded: list[Fact] = []
        self.void = ""
        """Why it can no longer be completed; empty while it can."""

    def folded(self, facts: Sequence[Fact], last_seq: int, *, anew: bool) -> None:
        """Note what a cycle folded, up to `last_seq`; `anew` when STATE began from nothing."""
        if anew:
            self.void = "STATE began anew meanwhile"
        self._folded += facts
        self._folded_seq = max(self._folded_seq, last_seq)

    def read(self, facts: list[Fact], last_seq: int) -> None:
        """Note the facts of STATE; `last_seq` is the sequence of the last one."""
        self._read = facts
        self._read_seq = last_seq

    @property
    def is_complete(self) -> bool:
        """Whether the next cycle's facts are known."""
        return not self.void and self._read is not None and self._folded_seq >= self._read_seq

    def facts(self) -> list[Fact]:
        """Return the facts that the cluster state holds, in the order in which they were folded."""
        return dump.latest([*(self._read or ()), *self._folded])
