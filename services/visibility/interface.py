"""The queries of the aggregated API, as two protocols.

The HTTP side (`adapters`) knows users, paths and tables; `queries` knows the cluster state. They
meet here only.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from shared.api.usage_reports import UsageReportSpec, UsageReportStatus
from shared.api.visibility import (
    Change,
    Explanation,
    NodeUse,
    PendingJob,
    QueueTree,
    RunningJob,
    Timeline,
    UsageHistory,
    WhatIfStatus,
)
from shared.api.whatifs import WhatIfSpec


class Queries(Protocol):
    """All queries; each result has everything, and the caller hides what its user may not see.

    A method raises `Retryable` while the cluster state is not synced, and `Rejected` for an invalid
    query, with the field that is wrong.
    """

    async def pending_jobs(self, namespace: str = "", *, queue: str = "") -> Sequence[PendingJob]:
        """Return jobs that wait, by queue and place in line; empty arguments mean all."""

    async def explanation(self, namespace: str, name: str) -> Explanation | None:
        """Return the explanation for a Job, else a PodGroup, else a pod of that name."""

    async def queue_trees(self) -> Sequence[QueueTree]:
        """Return all queues, each behind its parent."""

    async def what_if(self, namespace: str, spec: WhatIfSpec) -> WhatIfStatus:
        """Return the decision of the engine on a copy of the cluster with that change."""

    async def timeline(self, namespace: str, name: str) -> Timeline | None:
        """Return the life of a Job, or of a PodGroup that no Job owns."""

    async def usage_history(self) -> UsageHistory:
        """Return waits and use of the cluster over the last hours, in steps."""

    async def usage_report(self, spec: UsageReportSpec) -> UsageReportStatus:
        """Return a report of accounting, or on the shares of queues and users."""


class LiveQueries(Protocol):
    """Queries that only the live page needs; they raise and filter as those of `Queries` do."""

    async def running_jobs(self, namespace: str = "") -> Sequence[RunningJob]:
        """Return jobs that have pods on nodes, by namespace and name."""

    async def node_uses(self) -> Sequence[NodeUse]:
        """Return how full each node is, by name."""

    def changes(self, namespace: str = "") -> AsyncGenerator[Change, None]:
        """Yield the latest events and what changes from now on; of one namespace if it is named.

        Lists that change often are named once per second at most. An empty change says, four times
        a minute, that nothing is new.
        """
