"""Claims for devices, and the tasks that use them (dynamic resource allocation)."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from services.scheduler.engine.tasks.policy_state import Fold, PolicyState
from services.scheduler.engine.tasks.requests import device_claims
from services.scheduler.engine.tasks.task import Task
from shared.api import kinds
from shared.api.core import Pod
from shared.api.resource import DeviceRequest, ResourceClaim

_THOUSANDTHS: Final = 1000


class Devices(PolicyState):
    """The claims of a cluster by key."""

    def __init__(self) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        self.users: dict[str, Task] = {}
        """Tasks with claims by uid."""

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read ResourceClaims."""
        return {kinds.RESOURCECLAIM.token: Fold(self.put_claim, self.remove_claim)}

    def put_claim(self, key: str, claim: ResourceClaim) -> None:
        """Take over a claim."""
        self.claims[key] = claim

    def remove_claim(self, key: str) -> None:
        """Forget a claim."""
        self.claims.pop(key, None)

    @override
    def demand(self, pod: Pod) -> tuple[str, ...]:
        """Return the keys of a pod's claims."""
        return device_claims(pod)

    @override
    def join(self, task: Task, pod: Pod) -> None:
        """Note a task."""
        self.users[task.uid] = task

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        """Forget a task."""
        del self.users[task.uid]

    def asked(self, claims: tuple[str, ...]) -> Mapping[str, int]:
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
