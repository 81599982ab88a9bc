"""The table of resources: names, verbs and types. Discovery, OpenAPI and paths are made from it.

A resource that is added here needs its columns in `tables` and its source in `adapters/sources`.
"""

from typing import Final

import msgspec

from shared.api.base import View
from shared.api.usage_reports import UsageReport
from shared.api.visibility import (
    API_VERSION,
    Change,
    Explanation,
    NodeUse,
    PendingJob,
    QueueTree,
    RunningJob,
    Timeline,
    UsageHistory,
)
from shared.api.whatifs import WhatIf


class ServedResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, or a subresource of one (`queues/pendingjobs`)."""

    plural: str
    kind: str
    type: type[View]
    namespaced: bool = True
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Return group and version."""
        return API_VERSION

    @property
    def name(self) -> str:
        """Return the resource without its subresource."""
        return self.plural.partition("/")[0]

    @property
    def subresource(self) -> str:
        """Return the subresource, "" when it is none."""
        return self.plural.partition("/")[2]

    @property
    def singular(self) -> str:
        """Return the singular name; a subresource has none."""
        return "" if self.subresource else self.kind.lower()

    @property
    def is_list(self) -> bool:
        """Return whether a GET returns a list of objects, with any path."""
        return bool(self.subresource)


CHANGES: Final = "changes"
"""Server-sent events in place of objects: `adapters/changes`."""

RESOURCES: Final = (
    ServedResource(
        plural="pendingjobs",
        kind="PendingJob",
        type=PendingJob,
        verbs=("get", "list", "watch"),
        short_names=("pj",),
    ),
    ServedResource(
        plural="queues/pendingjobs",
        kind="PendingJob",
        type=PendingJob,
        namespaced=False,
        verbs=("get",),
    ),
    ServedResource(plural="explanations", kind="Explanation", type=Explanation, verbs=("get",)),
    ServedResource(
        plural="queuetrees",
        kind="QueueTree",
        type=QueueTree,
        namespaced=False,
        verbs=("get", "list", "watch"),
        short_names=("qt",),
    ),
    ServedResource(plural="whatifs", kind="WhatIf", type=WhatIf, verbs=("create",)),
    ServedResource(plural="timelines", kind="Timeline", type=Timeline, verbs=("get",)),
    ServedResource(
        plural="runningjobs",
        kind="RunningJob",
        type=RunningJob,
        verbs=("get", "list", "watch"),
        short_names=("rj",),
    ),
    ServedResource(
        plural="nodeuses",
        kind="NodeUse",
        type=NodeUse,
        namespaced=False,
        verbs=("get", "list", "watch"),
        short_names=("nu",),
    ),
    ServedResource(
        plural="usagehistories",
        kind="UsageHistory",
        type=UsageHistory,
        namespaced=False,
        verbs=("get", "list"),
        short_names=("uh",),
    ),
    ServedResource(
        plural="usagereports",
        kind="UsageReport",
        type=UsageReport,
        namespaced=False,
        verbs=("create",),
    ),
    ServedResource(plural=CHANGES, kind="Change", type=Change, verbs=("watch",)),
)

CLUSTER: Final = "cluster"
"""Subresource of whatifs that stands for the right to imagine other queues and nodes."""


def find(name: str, subresource: str = "") -> ServedResource | None:
    """Return a resource, None when it is not served."""
    plural = f"{name}/{subresource}" if subresource else name
    return next((resource for resource in RESOURCES if resource.plural == plural), None)
