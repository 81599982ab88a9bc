"""Steps that the sync of a CronJob yields, and their results.

A sync needs results before it can go on (does this job still exist? was that name taken?), so it is
a generator: it yields a step and is sent its result. The reconciler does the I/O; tests take
results from a table.
"""

from collections.abc import Generator
from typing import TypeVar

import msgspec

from shared.api.batch import Job
from shared.api.cron import CronJobStatus


class RecordCronJobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Record an event on the CronJob. Its result is None (X04)."""

    reason: str
    message: str
    warning: bool = False
    occasion: str = ""
    """Distinguishes Events with the same text about different times."""


class ReadJob(msgspec.Struct, frozen=True, kw_only=True):
    """Read a job from the API server. The result is the Job, None if it was deleted, or Failed."""

    name: str


class CreateJob(msgspec.Struct, frozen=True, kw_only=True):
    """Create a job. The result is the created Job, NameTaken or Failed."""

    job: Job


class DeleteJob(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a job; one that is already deleted counts as deleted. The result is None or Failed."""

    job: Job


class WriteCronJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write the status. The result is None or Failed."""

    status: CronJobStatus


class NameTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a job to be made was in use."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The API server refused the request, or did not respond."""

    reason: str
    namespace_ends: bool = False
    """Whether the namespace is being deleted, so that nothing can be created in it."""


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a sync ended."""

    requeue_after_s: float | None = None
    """When to reconcile again, from now on; None: not before something changes."""
    failed: str = ""
    """Why the sync has to be repeated; empty when all went well."""
    invalid: str = ""
    """Why nothing can be done before the spec changes; empty if it is valid."""
    unreported: bool = False
    """Whether an Event must report the invalid spec: Volcano does so when a spec changes (X04)."""


Step = RecordCronJobEvent | ReadJob | CreateJob | DeleteJob | WriteCronJobStatus
StepResult = Job | NameTaken | Failed | None

Result = TypeVar("Result")
StepGenerator = Generator[Step, StepResult, Result]
"""A part of a sync that ends in a Result."""


def failure(result: StepResult) -> Failed | None:
    """Return the answer if it is a failure."""
    return result if isinstance(result, Failed) else None
