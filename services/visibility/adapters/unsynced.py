"""Answers of a process that does not know the cluster yet: each question may be asked again."""

from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

from services.visibility.answers.replica import Replica
from shared.api.visibility import (
    Explanation,
    PendingJob,
    QueueTree,
    Timeline,
    WhatIfSpec,
    WhatIfStatus,
)
from shared.runtime.errors import Retryable

T = TypeVar("T")


class Unsynced:
    """Knows nothing, and says so."""

    version: Final = 0

    async def pending_jobs(self, namespace: str = "", *, queue: str = "") -> Sequence[PendingJob]:
        """Raise Retryable."""
        del namespace, queue
        _raise()

    async def explanation(self, namespace: str, name: str) -> Explanation | None:
        """Raise Retryable."""
        del namespace, name
        _raise()

    async def queue_trees(self) -> Sequence[QueueTree]:
        """Raise Retryable."""
        _raise()

    async def what_if(self, namespace: str, spec: WhatIfSpec) -> WhatIfStatus:
        """Raise Retryable."""
        del namespace, spec
        _raise()

    async def timeline(self, namespace: str, name: str) -> Timeline | None:
        """Raise Retryable."""
        del namespace, name
        _raise()

    async def ask(self, work: Callable[[Replica], T]) -> T:
        """Raise Retryable: there is no replica to ask."""
        del work
        _raise()


def _raise() -> NoReturn:
    raise Retryable("the state of the cluster is not synced yet")
