"""Device claims and their allocations (dynamic resource allocation).

A device is allocated by the status of a claim, by a published bind that the status does not show
yet, or by a task that this session placed. Devices of terminating tasks count as free for waiting
tasks, but no task is bound with one before the status of its claim shows it as free.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from pumice.plugins import Fold, Journal, PolicyState, PublishedBind, Task, TaskClass
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.tasks.classes import device_claims
from services.scheduler.policy.devices.fits import FITS, Fits
from services.scheduler.policy.devices.pools import DeviceId, Inventory
from services.scheduler.policy.devices.requests import (
    QUOTA,
    ClaimRequest,
    DeviceMatcher,
    DeviceRefusal,
    demand_of,
    read,
)
from services.scheduler.policy.devices.results import shared_parts, with_share_ids
from services.scheduler.policy.devices.selectors import Evaluator, NoEvaluator
from services.scheduler.policy.devices.shares import AllocatedDevices, Parts, added, has_room
from services.scheduler.policy.states.claim_users import ClaimUsers
from services.scheduler.policy.states.device_promises import PromisedAllocation, Promises
from shared.api import kinds
from shared.api.core import Pod
from shared.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceClaimStatus
from shared.contracts.messages import Bind
from shared.model.status import TERMINAL, TaskStatus

_PLACED_NOW: Final = frozenset({TaskStatus.ALLOCATED, TaskStatus.PIPELINED})


class Devices(PolicyState):
    """The claims of a cluster by key, and the devices for them."""

    name: ClassVar[str] = "devices"

    def __init__(self, evaluator: Evaluator | None = None) -> None:
        """Evaluate the conditions on devices by `evaluator`; none without it."""
        self.claims: dict[str, ResourceClaim] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.inventory = Inventory()
        self.fits = Fits(self.inventory, DeviceMatcher(evaluator or NoEvaluator()))
        self.users: dict[str, Task] = {}
        """Tasks with claims by uid."""
        self._asks: dict[str, ClaimRequest | DeviceRefusal] = {}
        self._shapes: dict[str, bytes] = {}
        """Claim → its spec encoded: claims of equal shape ask for the same."""
        self._demands: dict[str, Mapping[str, int]] = {}
        """Claim → what it asks for by the names of quotas."""
        self._on_nodes = ClaimUsers()
        self._decided: dict[str, PromisedAllocation] = {}
        self._decided_for: dict[str, set[str]] = {}
        """Claim → uids of the tasks that are on nodes with what was decided, or were to be."""
        self._promises = Promises(self._on_nodes)
        self._holders: dict[DeviceId, set[str]] = {}
        """Device → claims that have it."""
        self._shares: dict[DeviceId, dict[str, Parts]] = {}
        """Device that is shared → claim → what it has of it."""
        self._sums: dict[DeviceId, Parts] = {}
        """Device that is shared → what all claims have of it together."""
        self._taken = AllocatedDevices(self._holders, self._sums)
        self._given_up: set[str] = set()
        """Claims that hold devices and have no users but such as leave."""
        self._in_future: AllocatedDevices | None = None
        self._attributes: NodeAttributes | None = None

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read claims, classes of devices, and what drivers offer."""
        return {
            kinds.RESOURCECLAIM.token: Fold(self.put_claim, self.remove_claim),
            kinds.DEVICECLASS.token: Fold(self.put_class, self.remove_class),
            kinds.RESOURCESLICE.token: Fold(self.inventory.put, self.inventory.remove),
        }

    def put_claim(self, key: str, claim: ResourceClaim) -> None:
        """Store a claim. Raises `BadQuantity`."""
        demand = demand_of(claim.spec.devices)
        shared_parts(claim.status.allocation)  # raises before anything is stored
        before = self.claims.get(key)
        if before is not None and before.metadata.uid != claim.metadata.uid:
            self.remove_claim(key)
        self._count(key, self.allocation(key), counts=False)
        self.claims[key] = claim
        if before is None or before.spec != claim.spec:
            self._asks.pop(key, None)
            self._shapes[key] = msgspec.json.encode(claim.spec)
            self._demands[key] = demand
        if claim.status.allocation is not None:
            for mapping in (self._decided, self._decided_for, self._promises.by_claim):
                mapping.pop(key, None)
        else:
            self._recall(key)
        self._count(key, self.allocation(key), counts=True)
        self._review(key)

    def remove_claim(self, key: str) -> None:
        """Forget a claim."""
        self._count(key, self.allocation(key), counts=False)
        by_claim = (self.claims, self._asks, self._shapes, self._demands)
        for mapping in (*by_claim, self._decided, self._decided_for, self._promises.by_claim):
            mapping.pop(key, None)
        self._review(key)

    def put_class(self, name: str, device_class: DeviceClass) -> None:
        """Store a class of devices."""
        self.classes[name] = device_class
        self._asks.clear()
        self.fits.forget()

    def remove_class(self, name: str) -> None:
        """Forget a class of devices."""
        self.classes.pop(name, None)
        self._asks.clear()
        self.fits.forget()

    # --- tasks -------------------------------------------------------------------------------

    @override
    def demand(self, pod: Pod) -> tuple[str, ...]:
        """Return the keys of a pod's claims."""
        return device_claims(pod)

    @override
    def join(self, task: Task, pod: Pod) -> None:
        """Note a task."""
        self.users[task.uid] = task
        self._review(*task.task_class.device_claims)

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        """Forget a task."""
        del self.users[task.uid]
        claims = task.task_class.device_claims
        self._on_nodes.drop(task.uid, claims)
        for key in claims:
            self._withdraw(key, task.uid)
            if gone:
                self._promises.drop(key, {task.uid})
        self._review(*claims)

    @override
    def count(self, task: Task, sign: int) -> None:
        """Add a task on its node (-1: remove it); one that is evicted keeps what it has."""
        claims = task.task_class.device_claims
        uses = self._on_nodes.count(task, claims, sign)
        if sign > 0:
            for key in claims:
                self._recall(key)
            if task.status in _PLACED_NOW:
                self._allocate(task)
        for key in claims:
            if not uses:
                self._withdraw(key, task.uid)
            elif key in self._decided:
                self._decided_for[key].add(task.uid)
        self._review(*claims)

    def _withdraw(self, key: str, uid: str) -> None:
        """Remove a task from the decision about a claim; without tasks the decision is dropped."""
        tasks = self._decided_for.get(key)
        if tasks is None:
            return
        tasks.discard(uid)
        if not tasks:
            del self._decided_for[key]
            self._count(key, self._decided.pop(key).allocation, counts=False)

    @override
    def assume(self, bind: PublishedBind) -> None:
        """Keep the allocations of a published bind until the claims show them."""
        self._promises.add(engine_record(bind, Bind), self.claims)

    def _recall(self, key: str) -> None:
        """Use the allocation of a published bind while its pod is on the chosen node."""
        claim = self.claims.get(key)
        if claim is None or self.allocation(key) is not None:
            return
        found = self._promises.kept(key, claim)
        if found is None:
            return
        promised, pods = found
        if any(self._is_overdrawn(device, key) for device in _ids(promised.allocation)):
            self._promises.drop(key, set(promised.pods))  # others have its devices
            return
        self._decide(key, promised, pods)

    def _decide(self, key: str, decided: PromisedAllocation, tasks: set[str]) -> None:
        self._decided[key] = decided
        self._decided_for[key] = tasks
        self._count(key, decided.allocation, counts=True)

    # --- decisions ---------------------------------------------------------------------------

    def begin_with(self, attributes: NodeAttributes) -> None:
        """Allocate in this session, for nodes with these attributes."""
        self._attributes = attributes

    def request_evaluations(self, attributes: NodeAttributes) -> None:
        """Request the expression results that a decision about waiting tasks needs."""
        self.fits.begin()
        for task in self.users.values():
            keys = [key for key in task.task_class.device_claims if self.allocation(key) is None]
            asks = self.asks(keys)
            if keys and task.status is TaskStatus.PENDING and not isinstance(asks, DeviceRefusal):
                shape = (*self.shape(keys), True)
                self.fits.answer(shape, asks, attributes, self.taken(), owner=task.namespace)

    @override
    def bars(self, task_class: TaskClass) -> bool:
        """Tell whether no node has devices for the claims of a class, even when pods have gone.

        Within a session devices only become scarcer. A claim whose selectors are being evaluated
        is allocated nowhere meanwhile.
        """
        attributes = self._attributes
        keys = task_class.device_claims
        if attributes is None or not keys:
            return False
        asks = self.asks(key for key in keys if self.allocation(key) is None)
        if isinstance(asks, DeviceRefusal):
            return True
        if not asks:
            return False
        shape = self.shape(key for key in keys if self.allocation(key) is None)
        reserved = self.kept()
        owner, as_now = keys[0].partition("/")[0], reserved is self.taken()
        fit = self.fits.answer((*shape, as_now), asks, attributes, reserved, owner=owner)
        return bool(fit.fault) or not (fit.codes == FITS).any()

    def _allocate(self, task: Task) -> None:
        """Choose devices for the claims of a task that has been placed."""
        attributes = self._attributes
        if attributes is None:
            return
        keys = [key for key in task.task_class.device_claims if self.allocation(key) is None]
        asks = self.asks(keys)
        column = self.fits.column(task.node, attributes)
        if not keys or isinstance(asks, DeviceRefusal) or column < 0:
            return
        found = self.fits.allocate(asks, attributes, column, self.taken())
        if isinstance(found, DeviceRefusal) and task.status is TaskStatus.PIPELINED:
            found = self.fits.allocate(asks, attributes, column, self.kept())
        if not isinstance(found, DeviceRefusal):
            for key, allocation in zip(keys, found, strict=True):
                own = with_share_ids(allocation, self.claims[key].metadata.uid)
                self._decide(key, PromisedAllocation(task.node, own), {task.uid})

    def asks(self, keys: Iterable[str]) -> list[ClaimRequest] | DeviceRefusal:
        """Return the requests of claims, or the fault of one."""
        found = []
        for key in keys:
            claim = self.claims.get(key)
            if claim is None:
                return DeviceRefusal(f"resource claim {key} is not known", fault=True)
            ask = self._asks.get(key)
            if ask is None:
                ask = self._asks[key] = read(
                    claim.spec.devices, self.classes, claim.metadata.namespace
                )
            if isinstance(ask, DeviceRefusal):
                return ask._replace(text=f"resource claim {key}: {ask.text}")
            found.append(ask)
        return found

    def shape(self, keys: Iterable[str]) -> tuple[bytes, ...]:
        """Return the shape of claims: a key that is equal for equal requests."""
        return tuple(self._shapes[key] for key in keys)

    def allocation(self, key: str) -> AllocationResult | None:
        """Return the current or decided allocation of a claim."""
        claim = self.claims.get(key)
        if claim is not None and claim.status.allocation is not None:
            return claim.status.allocation
        return self._decided[key].allocation if key in self._decided else None

    def reserved(self, key: str) -> set[str]:
        """Return the uids of those that may use a claim, or were placed to use it."""
        claim = self.claims[key]
        placed = set[str]() if claim.is_of_group else self._on_nodes.nodes(key).keys()
        return claim.status.users | placed

    @override
    def lacking(self, task: Task) -> str:
        """Return the first claim that is unallocated or still held by a terminating pod."""
        for key in task.task_class.device_claims if self._attributes is not None else ():
            allocation = self.allocation(key)
            if allocation is None:
                return f"resource claim {key} is not allocated"
            for device in _ids(allocation):
                if self._is_overdrawn(device, key):
                    return f"device {'/'.join(device)} of resource claim {key} is still in use"
        return ""

    @override
    def awaited(self, task: Task) -> str:
        """Return the devices reserved for a task that their drivers have not prepared yet."""
        for key in task.task_class.device_claims:
            status = self.claims[key].status if key in self.claims else ResourceClaimStatus()
            if status.allocation is None or not status.admits(task.uid, task.job_key):
                continue
            if unmet := status.unmet(status.allocation):
                return f"devices of resource claim {key} have to be prepared ({', '.join(unmet)})"
        return ""

    # --- allocated devices --------------------------------------------------------------

    def taken(self) -> AllocatedDevices:
        """Return the devices and shares that claims have."""
        return self._taken

    def kept(self) -> AllocatedDevices:
        """Return the devices that waiting tasks cannot get either."""
        if not self._given_up:
            return self._taken
        if self._in_future is None:
            self._in_future = AllocatedDevices(
                frozenset(
                    device for device, claims in self._holders.items() if claims - self._given_up
                ),
                {
                    device: added([part for key, part in shares.items() if key in staying])
                    for device, shares in self._shares.items()
                    if (staying := shares.keys() - self._given_up)
                },
            )
        return self._in_future

    def _is_overdrawn(self, device: DeviceId, key: str) -> bool:
        """Tell whether a claim's share exceeds what other claims leave of a device."""
        if not self._holders.get(device, set()) - {key}:
            return False
        offered = self.inventory.device(device)
        shares = self._shares.get(device, {})
        if offered is None or shares.keys() != self._holders[device]:
            return True
        return not has_room(offered.device, {}, self._sums[device])

    def _count(self, key: str, allocation: AllocationResult | None, *, counts: bool) -> None:
        """Add or remove a claim as a holder of its devices."""
        self._count_shares(key, allocation, counts=counts)
        for device in _ids(allocation) if allocation is not None else ():
            claims = self._holders.setdefault(device, set())
            if counts:
                claims.add(key)
            else:
                claims.discard(key)
            if not claims:
                del self._holders[device]
            self.fits.note(device)
        self._in_future = None

    def _count_shares(self, key: str, allocation: AllocationResult | None, *, counts: bool) -> None:
        """Add or remove a claim's shares of shared devices."""
        for device, part in shared_parts(allocation).items():
            shares = self._shares.setdefault(device, {})
            if counts:
                shares[key] = part
            else:
                shares.pop(key, None)
            if shares:
                self._sums[device] = added(list(shares.values()))
            else:
                del self._shares[device]
                self._sums.pop(device, None)

    def _review(self, *keys: str) -> None:
        """Check whether claims are released: all their users terminate or are gone."""
        for key in keys:
            given_up = key in self.claims and self._is_given_up(key)
            if given_up is (key in self._given_up):
                continue
            if given_up:
                self._given_up.add(key)
            else:
                self._given_up.discard(key)
            self._in_future = None
            allocation = self.allocation(key)
            for device in _ids(allocation) if allocation is not None else ():
                self.fits.note(device)

    def _is_given_up(self, key: str) -> bool:
        status = self.claims[key].status
        if status.groups or self._on_nodes.staying(key):
            return False
        leaving = self._on_nodes.leaving(key)
        if not status.users:
            return bool(leaving)
        return not any(self._may_use(uid) for uid in status.users - leaving)

    def _may_use(self, uid: str) -> bool:
        task = self.users.get(uid)
        return task is not None and not TERMINAL[task.fact_status]

    # --- memory ------------------------------------------------------------------------------

    @override
    def begin(self, journal: Journal) -> None:
        """Begin a session, without allocations unless a plugin asks for them."""
        super().begin(journal)
        self._attributes = None
        self.fits.begin()
        self._promises.review(self.users)

    @override
    def dump(self) -> dict[str, PromisedAllocation]:
        """Return what published binds allocate."""
        return dict(sorted(self._promises.by_claim.items()))

    @override
    def restore(self, dumped: Any) -> None:
        """Store what published binds allocate."""
        self._promises.by_claim = msgspec.convert(dumped, dict[str, PromisedAllocation])

    # --- quotas ------------------------------------------------------------------------------

    def requested(self, claims: tuple[str, ...], *, capacities: bool = False) -> Mapping[str, int]:
        """Return the requests of claims by names of quotas, in thousandths.

        An unknown claim requests nothing. With `capacities` requested capacities of devices are
        included.
        """
        counts: Counter[str] = Counter()
        for key in claims:
            for name, amount in self._demands.get(key, {}).items():
                if capacities or name.startswith(QUOTA):
                    counts[name] += amount
        return counts


def _ids(allocation: AllocationResult) -> Iterable[DeviceId]:
    """Return the exclusively allocated devices, without those of admin access."""
    return [
        DeviceId(result.driver, result.pool, result.device)
        for result in allocation.devices.results
        if not result.admin_access
    ]
