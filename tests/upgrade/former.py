"""What former releases left behind: their messages, the forms of those, and their streams.

Each folder of `releases` is one, written by `python -m tests.upgrade.record`. Nothing in it is ever
changed: what this release cannot take of it, it cannot take of an installation either.
"""

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).with_name("releases")
CLUSTER = "local"
CLASSES = (
    "state.marker",
    "state.leader",
    "command.leader",
    "command bind",
    "command evict",
    *(f"desired {kind}" for kind in ("podgroup", "pod", "queue")),
    "outcome bound",
    "outcome evicted",
    "outcome.poison",
    *(f"lease.{service}" for service in ("cache", "scheduler", "controller")),
    *(f"member.{service}" for service in ("cache", "scheduler", "binder", "controller")),
    *(f"events.{topic}" for topic in ("gang.placed", "job.phase", "pod.bound")),
    "state.pods put",
    "state.pods delete",
    "state.jobs put",
)
"""Classes of messages that every recording has, besides the facts of other kinds."""


class Recorded(NamedTuple):
    """One message of a former release as it was on the bus."""

    name: str
    """Its class: the subject without names, and the kind of content."""
    subject: str
    payload: bytes


class Former(NamedTuple):
    """One former release."""

    name: str
    revision: str
    state_key: str
    """Seals what users wrote into jobs, in its messages."""

    def _read(self, file: str) -> Any:
        return json.loads((FOLDER / self.name / file).read_text("utf-8"))

    @property
    def streams(self) -> dict[str, Any]:
        """Its streams and durable consumers, as its declarer makes them."""
        return self._read("streams.json")

    def forms(self, part: str) -> dict[str, Any]:
        """Return the forms of its `messages`, or of the `bodies` of its facts."""
        return self._read(f"forms-of-{part}.json")

    @property
    def messages(self) -> list[Recorded]:
        """Its messages, in the order of their classes."""
        text = (FOLDER / self.name / "messages.jsonl").read_text("utf-8")
        return [_recorded(json.loads(line)) for line in text.splitlines()]

    @property
    def spoke(self) -> bool:
        """Whether its messages are kept, and not its streams alone."""
        return (FOLDER / self.name / "messages.jsonl").exists()


def former() -> list[Former]:
    """Return all former releases, the oldest first."""
    found = []
    for folder in sorted(path for path in FOLDER.iterdir() if path.is_dir()):
        about = json.loads((folder / "release.json").read_text("utf-8"))
        found.append(Former(folder.name, about["revision"], about.get("state_key", "")))
    return found


def _recorded(line: dict[str, str]) -> Recorded:
    plain = line.get("text")
    payload = base64.b64decode(line["base64"]) if plain is None else plain.encode()
    return Recorded(line["class"], line["subject"], payload)
