"""Claims of a pod as they travel with its bind: of volumes and of devices."""

from msgspec import Raw
from msgspec.structs import asdict

from services.scheduler.engine.placement.hooks import Combined
from services.scheduler.engine.tasks.task import Task
from shared.contracts.messages import ClaimUse, DeviceUse


def claims_of(hooks: Combined, task: Task) -> tuple[ClaimUse, ...]:
    """Return the claims that are to get their volumes."""
    if not task.task_class.claims:
        return ()
    return tuple(ClaimUse(**asdict(use)) for use in hooks.claims(task))


def devices_of(hooks: Combined, task: Task) -> tuple[DeviceUse, ...]:
    """Return the claims for devices, with what they have or are to get."""
    if not task.task_class.device_claims:
        return ()
    return tuple(
        DeviceUse(
            claim=use.claim,
            uid=use.uid,
            allocation=Raw(use.allocation),
            allocated=use.allocated,
        )
        for use in hooks.devices(task)
    )
