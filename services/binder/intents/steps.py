"""Values and rules that the steps of all intents share.

`ApiResponse` is a response of the API server, of one of five kinds. `RetryDelays` says when to try
again and when to stop. `IntentProgress` records how the items of an intent have ended.
"""

import enum
from typing import Final

import msgspec
from msgspec import structs

from shared.contracts.messages import (
    Bind,
    BindGang,
    Command,
    ItemOutcome,
    Outcome,
    Result,
    Retry,
    Victim,
)
from shared.model.backoff import delay_s


class ResponseKind(enum.Enum):
    """Kind of a response."""

    DONE = "done"
    CONFLICT = "conflict"
    """The object is not as the request supposes (409)."""
    GONE = "gone"
    """No object with that uid (404, or another uid under the name)."""
    REFUSED = "refused"
    """The same request would be refused again (400, 403, 422)."""
    BUSY = "busy"
    """Overload, time-out or no connection: whether it was done is unknown."""


class PodSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a pod that decides about intents."""

    uid: str
    node: str = ""
    rv: str = ""
    phase: str = "Pending"
    deleting: bool = False
    grace_s: float = 0.0
    """Seconds that the pod asks for between notice and eviction."""
    notice: str = ""
    """The notice of an eviction that it has got."""
    signal: str = ""
    """The URL, at its own address, that is called at the notice; "" for none."""
    foreign: str = ""
    """Why the pod must not be written to; empty if it belongs to a gang of our schedulers."""

    @property
    def finished(self) -> bool:
        """Return whether the pod has ended by itself."""
        return self.phase in {"Succeeded", "Failed"}


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Response of the API server; `snapshot` is the pod if it shows one (get, patch)."""

    kind: ResponseKind
    message: str = ""
    retry_after_s: float | None = None
    snapshot: PodSnapshot | None = None


class RetryDelays(msgspec.Struct, frozen=True, kw_only=True):
    """Delays that grow from `first_s` by `factor` up to `cap_s`; `attempts` until giving up.

    No jitter: the requests of one binder already pass one limiter, and replicas differ by
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
        own_s = delay_s(attempt - 1, first_s=self.first_s, cap_s=self.cap_s, factor=self.factor)
        return own_s if asked_s is None else min(max(own_s, asked_s), 60.0)

    def ends(self, attempt: int) -> bool:
        """Return whether the `attempt`-th try was the last one."""
        return attempt >= self.attempts


class Wait(msgspec.Struct, frozen=True):
    """Try the same again after `seconds`."""

    seconds: float


class Get(msgspec.Struct, frozen=True):
    """Get the pod: only its state shows whether the last request was executed."""


MESSAGE_MAX: Final = 200
"""Characters of the API server's words that an outcome repeats."""
_HEAD_LETTERS: Final = 60
_LEFT_OUT: Final = " … "


def ended(
    item: Bind | Victim,
    result: Result,
    *,
    node: str = "",
    rv: str = "",
    retry: Retry | None = None,
    message: str = "",
) -> ItemOutcome:
    """Return the outcome of one pod; that of a victim names its node.

    Messages are shortened so that an outcome fits its command.
    """
    return ItemOutcome(
        pod=item.pod,
        uid=item.uid,
        result=result,
        node=item.node if isinstance(item, Victim) else node,
        rv=rv,
        retry=retry,
        message=_shortened(message),
    )


def _shortened(message: str) -> str:
    """Return a message of at most `MESSAGE_MAX` letters.

    The middle goes: the API server puts the object first and the reason, such as a policy's own
    words, last.
    """
    if len(message) <= MESSAGE_MAX:
        return message
    tail = MESSAGE_MAX - _HEAD_LETTERS - len(_LEFT_OUT)
    return f"{message[:_HEAD_LETTERS]}{_LEFT_OUT}{message[-tail:]}"


class IntentProgress:
    """The items of one intent that have ended, in order; each ends exactly once."""

    def __init__(self, command: Command) -> None:
        items = command.binds if isinstance(command, BindGang) else command.victims
        self._command = command
        self._uids = [item.uid for item in items]
        self._ended: dict[int, ItemOutcome] = {}

    def record(self, index: int, outcome: ItemOutcome) -> None:
        """Record how the item at `index` ended."""
        assert index not in self._ended, "an item ends once"
        assert outcome.uid == self._uids[index], "an outcome belongs to its item"
        if len(outcome.message) > MESSAGE_MAX:
            outcome = structs.replace(outcome, message=_shortened(outcome.message))
        self._ended[index] = outcome

    def has(self, index: int) -> bool:
        """Return whether the item at `index` has ended."""
        return index in self._ended

    @property
    def open(self) -> int:
        """Return how many items have not ended."""
        return len(self._uids) - len(self._ended)

    def outcome(self, *, instance: str, now: float) -> Outcome:
        """Return the message that ends the intent; every item must have ended."""
        assert self.open == 0, "an intent ends when all of its items have"
        return Outcome(
            intent=self._command.id,
            job=self._command.job if isinstance(self._command, BindGang) else "",
            items=tuple(self._ended[index] for index in range(len(self._uids))),
            instance=instance,
            time=now,
        )
