"""What kube-apiserver answered: `answers/TOPIC.json`, by the names of cases and dialogues.

Both servers are held to it, which keeps it true to the pinned version of the real one. With
`PUMICE_CONTRACT_WRITE=1` in the environment the real side writes it again, for another version of
Kubernetes; nothing in it comes from the embedded one.
"""

import json
import os
from pathlib import Path
from typing import Any

from tests.contract.apiserver.client import Side

FOLDER = Path(__file__).parent / "answers"


def answers(topic: str) -> dict[str, Any]:
    """Return the answers of one topic by name."""
    file = FOLDER / f"{topic}.json"
    known: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return known


def answer_to(topic: str, name: str, *, side: Side, seen: Any) -> Any:
    """Return what is to be answered; where `side` is the real one and writes, that is `seen`."""
    known = answers(topic)
    if side.kind == "real" and os.environ.get("PUMICE_CONTRACT_WRITE"):
        known[name] = seen
        text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{topic}.json").write_text(text + "\n", encoding="utf-8")
    return known[name]
