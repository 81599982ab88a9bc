"""Conditions of Kubernetes' `metav1.Condition`, as statuses of CRDs list them."""

import enum
from typing import Annotated, Final

from msgspec import Meta

from shared.api.base import Int64, Timestamp, View, doc

_CONDITION_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class ConditionStatus(enum.StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(View, frozen=True, kw_only=True):
    """One condition of an object, with the bounds of `metav1.Condition`."""

    type: Annotated[str, Meta(max_length=316, pattern=_CONDITION_TYPE), doc("What is judged.")]
    status: Annotated[ConditionStatus, doc("True, False or Unknown.")]
    observed_generation: Annotated[Int64, Meta(ge=0), doc("Generation that was judged.")] = 0
    last_transition_time: Annotated[Timestamp, doc("When the status changed.")]
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        doc("One word why."),
    ]
    message: Annotated[str, Meta(max_length=32768), doc("Why, for people.")]
