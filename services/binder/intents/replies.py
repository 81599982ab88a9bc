"""What the API server said, in the five kinds that the steps of an intent tell apart."""

import enum

import msgspec


class Answer(enum.Enum):
    """Kind of an answer."""

    DONE = "done"
    CONFLICT = "conflict"
    """The object is not as the request supposes (409)."""
    GONE = "gone"
    """No object with that uid (404, or another uid under the name)."""
    REFUSED = "refused"
    """The same request would be refused again (400, 403, 422)."""
    BUSY = "busy"
    """Overload, time-out or no connection: whether it was done is unknown."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What of a pod decides about intents."""

    uid: str
    node: str = ""
    rv: str = ""
    phase: str = "Pending"
    deleting: bool = False
    foreign: str = ""
    """Why the pod is none of ours to evict; empty when it belongs to a gang of ours."""

    @property
    def finished(self) -> bool:
        """Return whether the pod has ended by itself."""
        return self.phase in {"Succeeded", "Failed"}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer; `seen` is the pod if the answer shows one (get, patch)."""

    answer: Answer
    message: str = ""
    retry_after_s: float | None = None
    seen: Seen | None = None
