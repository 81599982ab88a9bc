"""How far an intent is: which of its pods have ended, and how."""

from msgspec import structs

from services.binder.intents.bind import MESSAGE_MAX
from shared.contracts.messages import BindGang, Command, ItemOutcome, Outcome


class Ledger:
    """The items of one intent in their order; each ends exactly once."""

    def __init__(self, command: Command) -> None:
        items = command.binds if isinstance(command, BindGang) else command.victims
        self._command = command
        self._uids = [item.uid for item in items]
        self._ended: dict[int, ItemOutcome] = {}

    def record(self, index: int, outcome: ItemOutcome) -> None:
        """Note how the item at `index` ended."""
        assert index not in self._ended, "an item ends once"
        assert outcome.uid == self._uids[index], "an outcome belongs to its item"
        if len(outcome.message) > MESSAGE_MAX:
            outcome = structs.replace(outcome, message=outcome.message[:MESSAGE_MAX])
        self._ended[index] = outcome

    def has(self, index: int) -> bool:
        """Tell whether the item at `index` has ended."""
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
