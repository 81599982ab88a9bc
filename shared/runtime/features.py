"""Volcano's feature gates, `Name=true,…`: those that change what is done (M05)."""

from typing import Final

from shared.model.numbers import parse_bool
from shared.runtime.errors import Rejected

QUEUE_ADMISSION: Final = "SchedulingGatesQueueAdmission"
"""Pods that ask for it wait behind a scheduling gate until their queue has admitted them."""
_ALL_ALPHA: Final = "AllAlpha"

DESCRIPTION: Final = (
    f"Volcano's feature gates, Name=true,...; {QUEUE_ADMISSION} is heeded, "
    "docs/compatibility.md says what of the others is there"
)


def is_on(feature_gates: str, feature: str) -> bool:
    """Tell whether a feature of Volcano's alpha stage is on. Raises `Rejected`."""
    on = _read(feature_gates)
    return on.get(feature, on.get(_ALL_ALPHA, False))


def _read(feature_gates: str) -> dict[str, bool]:
    found = {}
    for entry in filter(None, map(str.strip, feature_gates.split(","))):
        name, _, value = entry.partition("=")
        wanted = parse_bool(value)
        if wanted is None:
            raise Rejected(
                f"--feature-gates: {entry!r} is not of the form Name=true or Name=false",
                field="feature-gates",
            )
        found[name] = wanted
    return found
