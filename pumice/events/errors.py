"""Errors that a subscription raises; each text is one line for a user."""


class EventsError(Exception):
    """Base of the client's errors."""


class Unreachable(EventsError):  # noqa: N818 - named by what happened, as are all here
    """The server, or its stream of events, cannot be reached at the first connection."""


class ClusterGone(EventsError):  # noqa: N818
    """The local cluster whose events were followed has ended."""


class NotAllowed(EventsError):  # noqa: N818
    """The server refuses the user, or the user lacks a right to read."""


class PositionGone(EventsError):  # noqa: N818
    """Events between the requested position and the oldest stored one are gone.

    `oldest` is the sequence of the oldest event that is kept (0 when there is none), `oldest_time`
    its time in Unix seconds: subscribe from there to continue with a known gap.
    """

    def __init__(self, message: str, *, oldest: int, oldest_time: float) -> None:
        super().__init__(message)
        self.oldest = oldest
        self.oldest_time = oldest_time
