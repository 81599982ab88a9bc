"""The form of an answer that a client asks for with its `Accept` header."""

import enum
from typing import Final

from services.visibility.api.statuses import NOT_ACCEPTABLE, Failure

_ANY: Final = frozenset({"*/*", "application/*", "application/json"})


class Form(enum.Enum):
    """Forms in which objects are given."""

    OBJECT = "object"
    TABLE = "table"


def form_of(accept: str) -> Form:
    """Return the first form that we have. Raises Failure (406) when it is none."""
    for kind, parameters in _ranges(accept):
        if kind not in _ANY:
            continue
        wanted = parameters.get("as", "")
        if wanted == "Table" and parameters.get("g") == "meta.k8s.io":
            return Form.TABLE
        if not wanted:
            return Form.OBJECT
    raise Failure(
        NOT_ACCEPTABLE,
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    )


def wants_aggregated(accept: str) -> bool:
    """Tell whether discovery is asked for in its aggregated form before any other."""
    for kind, parameters in _ranges(accept):
        if kind in _ANY and not parameters.get("as"):
            return False
        wanted = (parameters.get("as"), parameters.get("g"), parameters.get("v"))
        if wanted == ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"):
            return True
    return False


def _ranges(accept: str) -> list[tuple[str, dict[str, str]]]:
    ranges = []
    for text in (accept or "*/*").split(","):
        kind, *parameters = (part.strip() for part in text.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        ranges.append((kind, {key.strip(): value.strip() for key, _, value in pairs}))
    return ranges
