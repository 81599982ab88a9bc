"""Checks on the bus that each stored intent ends in exactly one outcome.

Reads the messages as the server stores them, which no process of the simulation can hide.
"""

from typing import Any

from pumice.embedded.memory_nats.stream import StoredMessage
from shared.contracts import codec
from shared.contracts.messages import BindGang
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ContractError

StoryText = tuple[str, dict[str, Any]]


class IntentOutcomes:
    """Counts the outcomes of each intent."""

    def __init__(self, cluster: str) -> None:
        prefix = Subjects(cluster=cluster).prefix
        self._state = f"{prefix}.state."
        self._command = f"{prefix}.command.p"
        self._desired = f"{prefix}.desired."
        self._outcome = f"{prefix}.outcome.p"
        self._intents: dict[str, int] = {}

    def take(self, message: StoredMessage) -> StoryText | None:
        """Take a stored message; return its text for the story, None if it is of no interest."""
        subject = message.subject
        try:
            if subject.startswith(self._command):
                return self._take_command(message.payload)
            if subject.startswith(self._outcome):
                return self._take_outcome(message.payload)
            if subject.startswith(self._desired):
                wanted = codec.decode_desired(message.payload)
                return f"desired {type(wanted).__name__}", {"key": wanted.key, "uid": wanted.uid}
            if subject.startswith(self._state) and subject.count(".") > 4:
                fact = codec.decode_fact(message.payload)
                about = {"key": fact.key, "uid": fact.uid, "rv": fact.rv, "op": fact.op.value}
                return f"fact {fact.kind}", about
        except ContractError as error:
            return "unreadable", {"subject": subject, "reason": str(error)}
        return None

    def open(self) -> list[str]:
        """Return the intents that have no outcome yet."""
        return [identity for identity, outcomes in self._intents.items() if not outcomes]

    def broken(self) -> list[tuple[str, str]]:
        """Return the intents that did not end in exactly one outcome, and how they did."""
        return [
            (identity, f"intent {identity} has {outcomes} outcomes")
            for identity, outcomes in self._intents.items()
            if outcomes != 1
        ]

    def _take_command(self, payload: bytes) -> StoryText:
        command = codec.decode_command(payload)
        self._intents.setdefault(command.id, 0)
        if isinstance(command, BindGang):
            binds = {bind.pod: f"{bind.node}/{bind.uid}" for bind in command.binds}
            return "intent bind", {"id": command.id, "job": command.job, "binds": binds}
        victims = {victim.pod: victim.uid for victim in command.victims}
        return "intent evict", {
            "id": command.id,
            "victims": victims,
            "for": command.preemptor.pod if command.preemptor else "",
        }

    def _take_outcome(self, payload: bytes) -> StoryText:
        outcome = codec.decode_outcome(payload)
        self._intents[outcome.intent] = self._intents.get(outcome.intent, 0) + 1
        results = {item.pod: f"{item.result.value} {item.message}" for item in outcome.items}
        return "outcome", {"id": outcome.intent, "by": outcome.instance, "items": results}
