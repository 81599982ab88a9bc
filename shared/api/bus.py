"""Command (bus.volcano.sh): an order to a job or a queue, as `vcctl` writes it (C05, J05).

Full API type; its fields are at the top level, it has neither spec nor status.
"""

from typing import Annotated

from shared.api.base import View, doc
from shared.api.meta import ObjectMeta


class Target(View, frozen=True, kw_only=True):
    """The object that a Command is for, in the form of an owner reference as `vcctl` writes it."""

    api_version: Annotated[str, doc("API version of the referent.")]
    kind: Annotated[str, doc("Kind of the referent.")]
    name: Annotated[str, doc("Name of the referent.")]
    uid: Annotated[str, doc("UID of the referent; without it any object of the name is meant.")] = (
        ""
    )
    controller: Annotated[
        bool | None, doc("True when the referent is the managing controller.")
    ] = None
    block_owner_deletion: Annotated[
        bool | None,
        doc("True when foreground deletion of the referent waits for this object."),
    ] = None


class Command(View, frozen=True, kw_only=True):
    """Do `action` to `target`."""

    metadata: ObjectMeta = ObjectMeta()
    action: Annotated[str, doc("What is to be done, such as AbortJob or ResumeJob.")] = ""
    target: Annotated[Target, doc("The object that it is done to.")] | None = None
    reason: Annotated[str, doc("One word why.")] = ""
    message: Annotated[str, doc("Why, for people.")] = ""
