"""Errors of the bus: the base of each class says what a caller should do.

The texts name the subject or stream and repeat the server's own words, since they end up in logs
and readiness reasons.
"""

from shared.runtime.errors import Conflict, Rejected, Retryable


class WrongSequence(Conflict):
    """The server refused a publish: the expected last sequence of a subject is not the last.

    For a fenced publish it means that another leader has begun its term, or that the stream was
    rebuilt; for a compare-and-set, that another process wrote first.
    """


class SequenceInFlight(WrongSequence):
    """The server did not compare: an earlier publish on the same condition is still being copied.

    A stream with copies on several servers takes one such publish after the other (`fenced`).
    """


class StreamFull(Retryable):
    """The stream has reached its declared limit and discards what is new."""


class LimitReached(Retryable):
    """The server has no room for one more consumer, stream or byte of this account.

    Others may use it up, such as subscribers with their own consumers: it is tried again, and no
    service ends for it.
    """


class StreamMissing(Retryable):
    """No stream takes this subject, or the stream does not exist (yet, or any more)."""


class NoReply(Retryable):
    """Nothing came back in time, or the connection broke: whether it was done is unknown."""


class TooLarge(Rejected):
    """The message is beyond the server's max_payload; it was not sent."""


class NotPermitted(Rejected):
    """The server does not allow this user to publish or subscribe to that subject."""
