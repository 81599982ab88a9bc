"""Command (bus.volcano.sh): an order to a job or a queue, as `vcctl` writes it (C05, J05).

Full API type; its fields are at the top level, it has neither spec nor status.
"""

from typing import Annotated

from shared.api.base import View, doc
from shared.api.meta import ObjectMeta, OwnerReference


class Command(View, frozen=True, kw_only=True):
    """Do `action` to `target`."""

    metadata: ObjectMeta = ObjectMeta()
    action: Annotated[str, doc("What is to be done, such as AbortJob or ResumeJob.")] = ""
    target: Annotated[OwnerReference, doc("The object that it is done to.")] | None = None
    reason: Annotated[str, doc("One word why.")] = ""
    message: Annotated[str, doc("Why, for people.")] = ""
