"""Claims for devices, and the tasks that use them (dynamic resource allocation)."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from services.scheduler.engine.tasks.task import Task
from shared.api.resource import DeviceRequest, ResourceClaim

_THOUSANDTHS: Final = 1000


class Devices:
    """The claims of a cluster by key."""

    def __init__(self) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        self.users: dict[str, Task] = {}
        """Tasks with claims by uid."""

    def put_claim(self, key: str, claim: ResourceClaim) -> None:
        """Take over a claim."""
        self.claims[key] = claim

    def remove_claim(self, key: str) -> None:
        """Forget a claim."""
        self.claims.pop(key, None)

    def join(self, task: Task) -> None:
        """Note a task; one without claims is not kept."""
        if task.task_class.device_claims:
            self.users[task.uid] = task

    def leave(self, task: Task) -> None:
        """Forget a task."""
        self.users.pop(task.uid, None)

    def demand(self, claims: tuple[str, ...]) -> Mapping[str, int]:
        """Return device class → devices that these claims ask for, in thousandths.

        A claim that is not known yet asks for nothing, and "all" devices count as one: how many
        they are shows when they are allocated.
        """
        asked: Counter[str] = Counter()
        for key in claims:
            claim = self.claims.get(key)
            for request in claim.spec.devices.requests if claim else ():
                name, count = _wanted(request)
                asked[name] += count * _THOUSANDTHS
        return asked


def _wanted(request: DeviceRequest) -> tuple[str, int]:
    alternatives = (request.exactly,) if request.exactly else request.first_available
    if not alternatives or alternatives[0] is None:
        return "", 0
    return alternatives[0].device_class_name, alternatives[0].count or 1
