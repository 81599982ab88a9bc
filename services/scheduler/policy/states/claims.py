"""Device claims and their allocations (dynamic resource allocation).

A device is allocated by the status of a claim, by a published bind that the status does not show
yet, or by a task that this session placed. Devices of terminating tasks count as free for waiting
tasks, but no task is bound with one before the status of its claim shows it as free.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from pumice.plugins import (
    Fold,
    Journal,
    PolicyState,
    PublishedBind,
    Task,
    TaskClass,
)
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.tasks.classes import device_claims
from services.scheduler.policy.devices.extended import ContainerDevices, devices_of
from services.scheduler.policy.devices.fits import FITS, FitResult, Fits
from services.scheduler.policy.devices.pools import Inventory
from services.scheduler.policy.devices.requests import (
    ClaimRequest,
    DeviceMatcher,
    DeviceRefusal,
)
from services.scheduler.policy.devices.results import shared_parts, with_share_ids
from services.scheduler.policy.devices.selectors import Evaluator, NoEvaluator
from services.scheduler.policy.devices.shares import AllocatedDevices
from services.scheduler.policy.states.claim_requests import (
    NO_DEMAND,
    Asks,
    ClaimRequests,
    DeviceDemand,
    OpenClaims,
)
from services.scheduler.policy.states.claim_users import ClaimUsers
from services.scheduler.policy.states.device_holders import DeviceHolders, ids_of
from services.scheduler.policy.states.device_promises import PromisedAllocation, Promises
from services.scheduler.policy.states.extended_resources import ClaimToMake, ExtendedResources
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
        self.requests = ClaimRequests()
        self.claims = self.requests.claims
        self.inventory = Inventory()
        matcher = DeviceMatcher(evaluator or NoEvaluator())
        self.fits = Fits(self.inventory, matcher)
        self.extended = ExtendedResources(self.inventory, matcher)
        self.users: dict[str, Task] = {}
        """Tasks with claims by uid."""
        self._on_nodes = ClaimUsers()
        self._decided: dict[str, PromisedAllocation] = {}
        self._decided_for: dict[str, set[str]] = {}
        """Claim → uids of the tasks that are on nodes with what was decided, or were to be."""
        self._promises = Promises(self._on_nodes)
        self._holders = DeviceHolders(self.inventory, self.fits.note)
        self._given_up: set[str] = set()
        """Claims that hold devices and have no users but such as leave."""
        self._in_future: AllocatedDevices | None = None
        self._attributes: NodeAttributes | None = None

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read claims, classes of devices, and what drivers offer."""
        return {
            kinds.NODE.token: Fold(self.extended.put_node, self.extended.remove_node),
            kinds.RESOURCECLAIM.token: Fold(self.put_claim, self.remove_claim),
            kinds.DEVICECLASS.token: Fold(self.put_class, self.remove_class),
            kinds.RESOURCESLICE.token: Fold(self.inventory.put, self.inventory.remove),
            kinds.DEVICETAINTRULE.token: Fold(
                self.inventory.put_taint_rule, self.inventory.remove_taint_rule
            ),
        }

    def put_claim(self, key: str, claim: ResourceClaim) -> None:
        """Store a claim. Raises `BadQuantity`."""
        shared_parts(claim.status.allocation)  # raises before anything is stored
        before = self.claims.get(key)
        if before is not None and before.metadata.uid != claim.metadata.uid:
            self.remove_claim(key)
        allocation = self.allocation(key)
        self.requests.put(key, claim)
        self._count(key, allocation, counts=False)
        if self._promises.is_shown(key, claim.status.allocation):
            for mapping in (self._decided, self._decided_for, self._promises.by_claim):
                mapping.pop(key, None)
        else:
            self._recall(key)
        self._count(key, self.allocation(key), counts=True)
        self._review(key)

    def remove_claim(self, key: str) -> None:
        """Forget a claim."""
        self._count(key, self.allocation(key), counts=False)
        self.requests.remove(key)
        if self.extended.is_made(key):  # the binder may be about to make it anew
            self._count(key, self.allocation(key), counts=True)
        else:
            for mapping in (self._decided, self._decided_for, self._promises.by_claim):
                mapping.pop(key, None)
        self._review(key)

    def put_class(self, name: str, device_class: DeviceClass) -> None:
        """Store a class of devices."""
        self.requests.classes[name] = device_class
        self._classes_changed()

    def remove_class(self, name: str) -> None:
        """Forget a class of devices."""
        self.requests.classes.pop(name, None)
        self._classes_changed()

    def _classes_changed(self) -> None:
        self.requests.classes_changed()
        self.fits.forget()
        for task, key in self.extended.put_classes(self.requests.classes):
            if task.node and not TERMINAL[task.status]:
                self._on_nodes.count(task, (key,), 1)
                self._recall(key)
                self._review(key)

    # --- tasks -------------------------------------------------------------------------------

    @override
    def demand(self, pod: Pod) -> DeviceDemand | None:
        """Return the keys of a pod's claims, and its extended resources."""
        found = DeviceDemand(device_claims(pod), devices_of(pod))
        return found if any(found) else None

    def extended_of(self, task_class: TaskClass) -> tuple[ContainerDevices, ...]:
        """Return the extended resources of a class of tasks."""
        found: DeviceDemand = task_class.demands.get(self, NO_DEMAND)
        return found.extended

    def claims_of(self, task: Task) -> tuple[str, ...]:
        """Return the keys of a task's claims; the last is of its extended resources, if any."""
        claims, key = task.task_class.device_claims, self.extended.key(task)
        return claims if key is None else (*claims, key)

    @override
    def join(self, task: Task, pod: Pod) -> None:
        """Note a task."""
        self.users[task.uid] = task
        if asked := self.extended_of(task.task_class):
            self.extended.join(task, pod, asked)
        self._review(*self.claims_of(task))

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        """Forget a task."""
        del self.users[task.uid]
        claims = self.claims_of(task)
        self._on_nodes.drop(task.uid, claims)
        for key in claims:
            self._withdraw(key, task.uid)
            if gone:
                self._promises.drop(key, {task.uid})
        self._review(*claims)
        self.extended.leave(task)

    @override
    def count(self, task: Task, sign: int) -> None:
        """Add a task on its node (-1: remove it); one that is evicted keeps what it has."""
        claims = self.claims_of(task)
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
            self._count(key, self.allocation(key), counts=True)

    @override
    def assume(self, bind: PublishedBind) -> None:
        """Keep the allocations of a published bind until the claims show them."""
        self._promises.add(engine_record(bind, Bind), self.claims)

    def _recall(self, key: str) -> None:
        """Use the allocation of a published bind while its pod is on the chosen node."""
        claim = self.claims.get(key)
        if key in self._decided or (claim is None and not self.extended.is_made(key)):
            return
        found = self._promises.kept(key, claim)
        if found is None:
            return
        promised, pods = found
        if any(self._holders.is_overdrawn(device, key) for device in ids_of(promised.allocation)):
            self._promises.drop(key, set(promised.pods))  # others have its devices
            return
        self._decide(key, promised, pods)

    def _decide(self, key: str, decided: PromisedAllocation, tasks: set[str]) -> None:
        self._count(key, self.allocation(key), counts=False)
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
            if task.status is not TaskStatus.PENDING:
                continue
            for each in self.open_claims(task.task_class, attributes):
                if each.asks and not isinstance(each.asks, DeviceRefusal):
                    self.answer(each, each.asks, attributes, self.taken())

    @override
    def bars(self, task_class: TaskClass) -> bool:
        """Tell whether no node has devices for the claims of a class, even when pods have gone.

        Within a session devices only become scarcer. A claim whose selectors are being evaluated
        is allocated nowhere meanwhile.
        """
        where = self._attributes
        return where is not None and all(
            self._is_barred(each, where) for each in self.open_claims(task_class, where)
        )

    def _is_barred(self, claims: OpenClaims, attributes: NodeAttributes) -> bool:
        if isinstance(claims.asks, DeviceRefusal):
            return True
        if not claims.asks:
            return False
        fit = self.answer(claims, claims.asks, attributes, self.kept())
        return bool(fit.fault) or not (claims.concerned(fit.codes) == FITS).any()

    def answer(
        self,
        claims: OpenClaims,
        asks: Sequence[ClaimRequest],
        attributes: NodeAttributes,
        taken: AllocatedDevices,
    ) -> FitResult:
        """Return on which nodes claims can be allocated; `asks` are their requests."""
        shape = (*claims.shape, taken is self.taken())
        return self.fits.answer(shape, asks, attributes, taken, owner=claims.owner)

    def _allocate(self, task: Task) -> None:
        """Choose devices for the claims of a task that has been placed."""
        attributes = self._attributes
        if attributes is None:
            return
        keys, asks = self.lacks_on(task, task.node)
        column = self.fits.column(task.node, attributes)
        if not keys or isinstance(asks, DeviceRefusal) or column < 0:
            return
        found = self.fits.allocate(asks, attributes, column, self.taken())
        if isinstance(found, DeviceRefusal) and task.status is TaskStatus.PIPELINED:
            found = self.fits.allocate(asks, attributes, column, self.kept())
        if not isinstance(found, DeviceRefusal):
            for key, allocation in zip(keys, found, strict=True):
                claim = None if self.extended.is_made(key) else self.claims.get(key)
                own = with_share_ids(allocation, claim.metadata.uid if claim else task.uid)
                self._decide(key, PromisedAllocation(task.node, own), {task.uid})

    def lacks_on(self, task: Task, node: str) -> tuple[list[str], Asks]:
        """Return the claims of a task that have no devices on a node yet, with their requests."""
        keys = [key for key in task.task_class.device_claims if self.allocation(key) is None]
        asks, made = self.requests.asks(keys), self.made_on(task, node)
        key = self.extended.key(task)
        if made is None or key is None or key in self._decided or isinstance(asks, DeviceRefusal):
            return keys, asks
        if isinstance(made.ask, DeviceRefusal):
            return keys, made.ask
        return [*keys, key], [*asks, made.ask]

    def made_on(self, task: Task, node: str) -> ClaimToMake | None:
        """Return the claim for a task's extended resources on a node, None if it needs none."""
        asked = self.extended_of(task.task_class)
        resources = self.extended.resources_on(asked, node) if asked else None
        return self.extended.claim(asked, resources) if resources else None

    def open_claims(
        self, task_class: TaskClass, attributes: NodeAttributes
    ) -> Iterator[OpenClaims]:
        """Yield what a class of tasks lacks, for each group of nodes where that differs."""
        claims = task_class.device_claims
        keys = [key for key in claims if self.allocation(key) is None]
        asks = self.requests.asks(keys)
        shape = () if isinstance(asks, DeviceRefusal) else self.requests.shape(keys)
        owner = claims[0].partition("/")[0] if claims else ""
        asked = self.extended_of(task_class)
        if isinstance(asks, DeviceRefusal) or not self.extended.concerns(asked):
            yield OpenClaims(None, asks, shape, owner, tuple(keys))
            return
        for group in self.extended.groups(asked, attributes):
            if not group.resources:
                yield OpenClaims(group.nodes, asks, shape, owner, tuple(keys))
                continue
            made = self.extended.claim(asked, group.resources)
            named = (*keys, ", ".join(sorted(group.resources)))
            every = made.ask if isinstance(made.ask, DeviceRefusal) else [*asks, made.ask]
            yield OpenClaims(group.nodes, every, (*shape, made.shape), owner, named)

    def allocation(self, key: str) -> AllocationResult | None:
        """Return the current or decided allocation of a claim."""
        if key in self._decided:
            return self._decided[key].allocation
        claim = self.claims.get(key)
        return claim.status.allocation if claim is not None else None

    def reserved(self, key: str) -> set[str]:
        """Return the uids of those that may use a claim, or were placed to use it."""
        claim = self.claims[key]
        placed = set[str]() if claim.is_of_group else self._on_nodes.nodes(key).keys()
        return claim.status.users | placed

    @override
    def lacking(self, task: Task) -> str:
        """Return the first claim that is unallocated or still held by a terminating pod."""
        for key in self.claims_of(task) if self._attributes is not None else ():
            if self.extended.is_made(key) and self.made_on(task, task.node) is None:
                continue
            allocation = self.allocation(key)
            if allocation is None:
                return f"resource claim {key} is not allocated"
            for device in ids_of(allocation):
                if self._holders.is_overdrawn(device, key):
                    return f"device {'/'.join(device)} of resource claim {key} is still in use"
        return ""

    @override
    def awaited(self, task: Task) -> str:
        """Return the devices reserved for a task that their drivers have not prepared yet."""
        for key in self.claims_of(task):
            status = self.claims[key].status if key in self.claims else ResourceClaimStatus()
            if status.allocation is None or not status.admits(task.uid, task.job_key):
                continue
            if unmet := status.unmet(status.allocation):
                return f"devices of resource claim {key} have to be prepared ({', '.join(unmet)})"
        return ""

    # --- allocated devices --------------------------------------------------------------

    def taken(self) -> AllocatedDevices:
        """Return the devices and shares that claims have."""
        return self._holders.taken

    def kept(self) -> AllocatedDevices:
        """Return the devices that waiting tasks cannot get either."""
        if not self._given_up:
            return self.taken()
        if self._in_future is None:
            self._in_future = self._holders.without(self._given_up)
        return self._in_future

    def _count(self, key: str, allocation: AllocationResult | None, *, counts: bool) -> None:
        """Add or remove a claim as a holder of its devices."""
        self._holders.count(key, allocation, counts=counts)
        self._in_future = None

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
            for device in ids_of(allocation):
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
    def node_resources(
        self, attributes: NodeAttributes, named: Sequence[str]
    ) -> Mapping[str, Mapping[str, int]] | None:
        """Return node → extended resource → devices that serve it; None: as before."""
        return self.extended.offers(attributes, named)

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
