"""When to try again, and when to stop trying."""

import msgspec


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """Delays that grow from `first_s` by `factor` up to `cap_s`; `attempts` until giving up.

    No jitter: the requests of one binder already leave through one pace, and replicas differ by
    what they hold.
    """

    first_s: float = 0.1
    factor: float = 2.0
    cap_s: float = 5.0
    attempts: int = 8

    def wait_s(self, attempt: int, asked_s: float | None) -> float:
        """Return the delay after the `attempt`-th try (from 1); what the server asks for counts.

        A wait that the server asks for is followed even beyond the cap, up to a minute.
        """
        own_s = min(self.first_s * self.factor ** min(attempt - 1, 32), self.cap_s)
        return own_s if asked_s is None else min(max(own_s, asked_s), 60.0)

    def ends(self, attempt: int) -> bool:
        """Return whether the `attempt`-th try was the last one."""
        return attempt >= self.attempts


class Wait(msgspec.Struct, frozen=True):
    """Try the same again after `seconds`."""

    seconds: float


class Look(msgspec.Struct, frozen=True):
    """Get the pod: only its present state tells what the last answer meant."""
