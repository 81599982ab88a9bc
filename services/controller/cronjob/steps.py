"""Requests of the sync of a CronJob to the API server, and the answers.

A sync needs answers in its middle (is this job still there? was that name taken?), so it is a
generator: it yields one of these asks and is sent the answer. The reconciler does the I/O; a test
answers from a table.
"""

from collections.abc import Generator
from typing import TypeVar

import msgspec

from shared.api.batch import Job
from shared.api.cron import CronJobStatus


class RecordCronJobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Record an event on the CronJob. No answer (X04)."""

    reason: str
    message: str
    warning: bool = False
    occasion: str = ""
    """Distinguishes Events with the same text about different times."""


class ReadJob(msgspec.Struct, frozen=True, kw_only=True):
    """Read a job from the API server itself. Answered by the Job, None (gone) or Failed."""

    name: str


class CreateJob(msgspec.Struct, frozen=True, kw_only=True):
    """Create a job. Answered by the Job as it was created, NameTaken or Failed."""

    job: Job


class DeleteJob(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a job; one that is gone already is deleted. Answered by None or Failed."""

    job: Job


class WriteCronJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write the status. Answered by None or Failed."""

    status: CronJobStatus


class NameTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a job to be made was in use."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The API server refused, or did not answer."""

    reason: str
    namespace_ends: bool = False
    """Nothing can be made any more, because the namespace is being deleted."""


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a sync ended."""

    requeue_after_s: float | None = None
    """When to reconcile again, from now on; None: not before something changes."""
    failed: str = ""
    """Why the sync has to be repeated; empty when all went well."""
    invalid: str = ""
    """Why nothing can be done before the spec changes; empty when it is sound."""
    unreported: bool = False
    """Whether an event has to say what is invalid: Volcano says it when a spec changes (X04)."""


Step = RecordCronJobEvent | ReadJob | CreateJob | DeleteJob | WriteCronJobStatus
StepResult = Job | NameTaken | Failed | None

Result = TypeVar("Result")
Asking = Generator[Step, StepResult, Result]
"""A part of a sync that ends in a Result."""


def failure(answer: StepResult) -> Failed | None:
    """Return the answer if it is a failure."""
    return answer if isinstance(answer, Failed) else None
