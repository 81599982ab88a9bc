"""Bounds for the texts of conditions, so that the status of an object fits into one message.

A message of NATS has at most 1 MiB by default. Most words come from elsewhere: names of resources
and nodes, reasons of plugins, conditions that another author wrote into an object. They are
shortened where they enter the cluster state or a plan, so that what is wanted and what the object
shows afterwards compare as equal.
"""

from typing import Final

from pumice.plugins import Condition

MESSAGE_LETTERS: Final = 2_000
"""Longest message of a condition or of an explanation."""
NAME_LETTERS: Final = 320
"""Longest type, status or reason; a key of two names of Kubernetes has at most 317 letters."""
_REST: Final = "..."


def shortened(text: str, most: int = MESSAGE_LETTERS) -> str:
    """Return a text of at most `most` letters; what was cut off is marked by three dots."""
    return text if len(text) <= most else text[: most - len(_REST)] + _REST


def bounded(condition: Condition) -> Condition:
    """Return a condition whose texts are of bounded length; the same one if they are already."""
    texts = (
        shortened(condition.type, NAME_LETTERS),
        shortened(condition.status, NAME_LETTERS),
        shortened(condition.reason, NAME_LETTERS),
        shortened(condition.message),
    )
    return condition if texts == tuple(condition) else Condition(*texts)
