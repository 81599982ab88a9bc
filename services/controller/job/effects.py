"""Effects of a pass over a job, as values; `adapters` carry them out.

A pass is a list of stages: the effects of one stage may run concurrently, the next stage starts
when all of them are done. Each effect can be repeated without harm, because a pass that fails
half-way is repeated whole.
"""

import msgspec

from services.controller.job.podtemplate import PodBuilder
from shared.api.base import Json
from shared.api.batch import JobPhase, JobStatus
from shared.jobplugins.interface import Companion


class WriteJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Patch the job's status."""

    patch: Json
    """Merge patch of `status`."""
    status: JobStatus
    """The status after it."""
    was: JobPhase | None
    urgent: bool
    """False for a mere change of counts, which may wait a little for the next (coalescing)."""


class AmendJob(msgspec.Struct, frozen=True, kw_only=True):
    """Write the fields outside of a job's status that are the controller's (J30, J33)."""

    patch: Json
    """Merge patch of the version that was decided on."""


class EnsureCompanions(msgspec.Struct, frozen=True, kw_only=True):
    """Create the job's companion objects, or patch those that differ."""

    companions: tuple[Companion, ...]
    digest: int
    anew: bool = False
    """Whether known companions may have been deleted since."""


class DropCompanions(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the job's companion objects."""

    companions: tuple[Companion, ...]


class CreateGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Create the job's PodGroup."""

    body: Json


class PatchGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Update the job's PodGroup from the job."""

    name: str
    uid: str
    patch: Json


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the job's PodGroup."""

    name: str
    uid: str


class CreatePods(msgspec.Struct, frozen=True, kw_only=True):
    """Create pods of one task."""

    builder: PodBuilder
    indexes: tuple[int, ...]
    version: int


class MarkPod(msgspec.Struct, frozen=True, kw_only=True):
    """Mark a pod out of sync: it will be deleted, and its end is no eviction (J21)."""

    name: str
    uid: str


class DeletePod(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a pod."""

    name: str
    uid: str


class DeleteCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a Command that the status has recorded."""

    name: str
    uid: str


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Record a Kubernetes Event on the job (J34)."""

    reason: str
    message: str
    warning: bool = False
    occasion: str = ""
    """Distinguishes Events with the same text about two occurrences."""


Effect = (
    WriteJobStatus
    | AmendJob
    | EnsureCompanions
    | DropCompanions
    | CreateGroup
    | PatchGroup
    | DeleteGroup
    | CreatePods
    | MarkPod
    | DeletePod
    | DeleteCommand
    | RecordEvent
)
