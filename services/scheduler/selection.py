"""The nodes that a scheduler works with, as its flags name them (K11)."""

from collections.abc import Sequence

from shared.runtime.errors import Rejected


def node_labels(selectors: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the labels of `--node-selector`, each `name:value`. Raises `Rejected`."""
    found = []
    for text in selectors:
        name, _, value = (part.strip() for part in text.partition(":"))
        if not (name and value):
            raise Rejected(
                f"--node-selector: {text!r} is not of the form name:value", field="node-selector"
            )
        found.append((name, value))
    return tuple(found)
