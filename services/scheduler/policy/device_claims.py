"""ResourceClaims: nodes where a pod's claims can be allocated, quotas of queues (PL06, PL07).

An allocated claim names the nodes that reach its devices. Devices of another claim are chosen when
its pod is placed, so a node is feasible if it has suitable devices.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from pumice.plugins import (
    Cluster,
    CodeArray,
    CrossNodeVerdict,
    DeviceUse,
    Job,
    Opinion,
    Queue,
    Reason,
    Task,
    TaskClass,
    Vote,
)
from services.scheduler.engine.jobs.records import Job as EngineJob
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.policy.capacity_accounts import Accounts
from services.scheduler.policy.devices.extended import MadeClaim
from services.scheduler.policy.devices.fits import IN_USE, LACKING, PENDING
from services.scheduler.policy.devices.requests import QUOTA, DeviceRefusal
from services.scheduler.policy.devices.shares import AllocatedDevices
from services.scheduler.policy.states.claim_requests import OpenClaims
from services.scheduler.policy.states.claims import Devices
from shared.api.resource import (
    ALL,
    RESERVED_MAX,
    AllocationResult,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimStatus,
)
from shared.model.status import HOLDS_RESOURCES, TaskStatus

CLAIM_REASONS = (
    Reason("waiting for a resource claim to be created", resolvable=False),
    Reason("cannot allocate all claims", resolvable=False),
    Reason("cannot allocate all claims", resolvable=True),
    Reason("resourceclaim not available on the node", resolvable=False),
    Reason("resourceclaim in use", resolvable=False),
)
_UNKNOWN, _LACKING, _TAKEN, _ELSEWHERE, _FULL = range(1, 6)
_NAMED_MAX: Final = 3
"""Most claims that a reason names."""
_POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"


class DeviceClaims:
    """Predicate of resource claims, and the devices of a bind."""

    def __init__(self, cluster: Cluster) -> None:
        self._devices = cluster.store(Devices)
        self._attributes = cluster.store(NodeAttributes)
        self._devices.begin_with(self._attributes)

    def predicate(self, task_class: TaskClass) -> CrossNodeVerdict | None:
        """Return the predicate, None for a class without claims."""
        asked = self._devices.extended_of(task_class)
        if not task_class.device_claims and not self._devices.extended.concerns(asked):
            return None
        predicate_verdict = _Verdict(self._devices, self._attributes, task_class)
        return CrossNodeVerdict(
            predicate_verdict.codes,
            one_by_one=True,
            reasons=predicate_verdict.reasons,
            later=predicate_verdict.later,
        )

    def settle_on(self, task: Task) -> tuple[DeviceUse, ...]:
        """Return the devices of a placed task's claims."""
        devices, found = self._devices, []
        made = devices.made_on(task, task.node)
        key_of_made = devices.extended.key(task)
        if made is not None and key_of_made is not None:
            allocation = devices.allocation(key_of_made)
            if allocation is not None:
                found.append(_use_of_made(key_of_made, made.made, allocation))
        for key in task.task_class.device_claims:
            claim, allocation = devices.claims.get(key), devices.allocation(key)
            if claim is not None and allocation is not None:
                encoded = msgspec.json.encode(allocation)
                allocated = claim.status.allocation is not None
                found.append(
                    DeviceUse(
                        claim=key,
                        uid=claim.metadata.uid,
                        allocation=encoded,
                        allocated=allocated,
                        to_prepare=bool(claim.status.unmet(allocation)),
                    )
                )
        return tuple(found)


def _use_of_made(key: str, made: MadeClaim, allocation: AllocationResult) -> DeviceUse:
    """Return the use of a claim that the binder is to make for a pod's extended resources."""
    return DeviceUse(
        claim=key,
        uid="",
        allocation=msgspec.json.encode(allocation),
        allocated=False,
        to_prepare=bool(ResourceClaimStatus().unmet(allocation)),
        requests=tuple(
            (request.name, asks.device_class_name, asks.count)
            for request in made.claim.requests
            for asks in request.alternatives
        ),
        mappings=tuple((m.container, m.resource, m.request) for m in made.mappings),
    )


class _Verdict:
    """The verdict on all nodes for one class of tasks."""

    def __init__(self, devices: Devices, attributes: NodeAttributes, task_class: TaskClass) -> None:
        self._devices = devices
        self._attributes = attributes
        self._task_class = task_class
        self._claims = task_class.device_claims
        self._fault = ""

    def codes(self) -> CodeArray:
        """Return a code per node."""
        return self._codes(self._devices.taken())

    def later(self) -> CodeArray:
        """Return a code per node for the state after all terminating pods are gone."""
        return self._codes(self._devices.kept())

    def _codes(self, taken: AllocatedDevices) -> CodeArray:
        codes = np.zeros(len(self._attributes.names), dtype=np.uint8)
        self._fault = ""
        whole = self._code_for_all_nodes()
        if whole:
            codes[:] = whole
            return codes
        for key in self._claims:
            allocation = self._devices.allocation(key)
            if allocation is not None and allocation.node_selector is not None:
                reached = self._attributes.selected(allocation.node_selector)
                codes[~reached & (codes == 0)] = _ELSEWHERE
        for each in self._devices.open_claims(self._task_class, self._attributes):
            if each.asks:
                found = self._with_devices(each, taken)
                is_due = (codes == 0) if each.nodes is None else (codes == 0) & each.nodes
                codes[is_due] = found[is_due]
        return codes

    def _code_for_all_nodes(self) -> int:
        for key in self._claims:
            claim = self._devices.claims.get(key)
            if claim is None:
                return _UNKNOWN
            if claim.metadata.deletion_timestamp is not None:
                self._fault = f"resource claim {key} is being deleted"
                return _LACKING
            if len(self._devices.reserved(key)) >= RESERVED_MAX:
                return _FULL
        return 0

    def _with_devices(self, claims: OpenClaims, taken: AllocatedDevices) -> CodeArray:
        codes = np.zeros(len(self._attributes.names), dtype=np.uint8)
        if isinstance(claims.asks, DeviceRefusal):
            self._fault = claims.asks.text
            codes[:] = _LACKING
            return codes
        fit = self._devices.answer(claims, claims.asks, self._attributes, taken)
        found = fit.codes
        if fit.fault:
            self._fault = f"resource claim {claims.names[fit.claim]}: {fit.fault}"
            codes[:] = _LACKING
            return codes
        if fit.unknown is not None:
            names = ", ".join(claims.names[:_NAMED_MAX])
            failure = self._devices.fits.failure
            state = f"cannot be evaluated: {failure}" if failure else "are being evaluated"
            self._fault = f"the CEL selectors of {names} {state}"
        codes[(found == LACKING) | (found == PENDING)] = _LACKING
        codes[found == IN_USE] = _TAKEN
        return codes

    def reasons(self) -> tuple[Reason, ...]:
        """Return the reasons with the claims and device classes concerned."""
        names = [self._named(key) for key in self._claims]
        asked = self._devices.extended_of(self._task_class)
        names += sorted(self._devices.extended.amounts(asked))
        named = ", ".join(names[:_NAMED_MAX])
        text = f"{CLAIM_REASONS[_LACKING - 1].text}: {self._fault or named}"
        return tuple(
            reason._replace(
                text=text if number in {_LACKING, _TAKEN} else f"{reason.text}: {named}"
            )
            for number, reason in enumerate(CLAIM_REASONS, start=1)
        )

    def _named(self, key: str) -> str:
        claim = self._devices.claims.get(key)
        if claim is None:
            return key
        # Names of claims from one template have a common part, like those of their pods.
        name = claim.metadata.annotations.get(_POD_CLAIM_NAME, key)
        desired = ", ".join(_words(each) for each in claim.spec.devices.requests)
        return f"{name} ({desired})"


def _words(request: DeviceRequest) -> str:
    return " or ".join(_amount(each) for each in request.alternatives)


def _amount(asks: ExactDeviceRequest) -> str:
    amount = "all" if asks.allocation_mode == ALL else asks.count or 1
    return f"{amount} {asks.device_class_name}"


class _Claims:
    """Claims with the number of their tasks, and the sum of their requests, each counted once."""

    def __init__(self) -> None:
        self._tasks: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()

    def count(
        self,
        claims: Sequence[str],
        tasks: int,
        amounts_of: Callable[[tuple[str, ...]], Mapping[str, int]],
    ) -> None:
        """Add tasks (a negative number removes them); `amounts_of` has the claims' requests."""
        for claim in claims:
            before = self._tasks[claim]
            self._tasks[claim] = before + tasks
            change = (before + tasks > 0) - (before > 0)
            for name, amount in amounts_of((claim,)).items() if change else ():
                self.sums[name] += change * amount

    def lacks(self, claims: Sequence[str]) -> tuple[str, ...]:
        """Return the claims that no task counts for."""
        return tuple(claim for claim in claims if self._tasks[claim] <= 0)


class DeviceQuotas:
    """Quotas of device classes in the capabilities of queues, on every level of a tree.

    `deviceclass/<class>` limits devices, `<capacity>.deviceclass/<class>` the requested amount of a
    capacity of the devices, times their number. A claim counts once in each queue, however many
    pods share it. ⚠ If anything of a class is limited, a capacity that is not named may not be
    requested.
    """

    def __init__(self, cluster: Cluster, accounts: Accounts, *, capacities: bool = False) -> None:
        """Sum the allocations of the queues' tasks and the reservations of their jobs."""
        self._devices = cluster.store(Devices)
        self._capacities = capacities
        self._lines = {
            name: [level.name for level in account.lineage()] for name, account in accounts.items()
        }
        self._limits = {name: _limits(queue) for name, queue in cluster.queues.items()}
        levels = {level for line in self._lines.values() for level in line}
        self._held: dict[str, _Claims] = {level: _Claims() for level in levels}
        """Queue → claims of tasks that hold what they ask for."""
        self._reserved: dict[str, _Claims] = {level: _Claims() for level in levels}
        """Queue → further claims of tasks that wait in jobs which entered it."""
        entered: dict[str, Job] = {}
        for task in self._devices.users.values():
            job = cluster.job_of(task)
            if job is None or job.queue not in self._lines:
                continue
            if HOLDS_RESOURCES[task.status]:
                self._hold(job.queue, task.task_class.device_claims, 1)
            elif job.phase == "Inqueue":
                entered[job.key] = job
        for job in entered.values():
            self._reserve(job.queue, _waiting(job))

    def _asked(self, claims: tuple[str, ...]) -> Mapping[str, int]:
        return self._devices.requests.requested(claims, capacities=self._capacities)

    def _limit(self, level: str, name: str) -> int | None:
        """Return the limit of a queue, None if it is unlimited."""
        limits = self._limits[level]
        if name in limits or name.startswith(QUOTA):
            return limits.get(name)
        of_class = name[name.index(f".{QUOTA}") + 1 :]
        return 0 if any(each.endswith(of_class) for each in limits) else None

    def _hold(self, queue: str, claims: Sequence[str], tasks: int) -> None:
        """Add allocated claims of tasks; a negative number removes them."""
        for level in self._lines[queue]:
            self._held[level].count(claims, tasks, self._asked)

    def _reserve(self, queue: str, claims: Sequence[str]) -> None:
        for level in self._lines[queue]:
            further = self._held[level].lacks(claims)
            self._reserved[level].count(further, 1, self._asked)

    def allowed(self, queue: Queue, task_class: TaskClass, count: int) -> int:
        """Return how many of `count` tasks stay within the quotas: they share their claims."""
        claims = task_class.device_claims
        for level in self._lines[queue.name] if claims else ():
            allocated = self._held[level]
            for name, amount in self._asked(allocated.lacks(claims)).items():
                limit = self._limit(level, name)
                if limit is not None and amount > max(0, limit - allocated.sums[name]):
                    return 0
        return count

    def objection(self, job: Job) -> Opinion | None:
        """Return why a job may not enter its queue, None when it may."""
        claims = _waiting(job)
        for level in self._lines[job.queue]:
            allocated, reserved = self._held[level], self._reserved[level]
            demand = self._asked(reserved.lacks(allocated.lacks(claims)))
            left = {
                name: limit - allocated.sums[name] - reserved.sums[name]
                for name in demand
                if (limit := self._limit(level, name)) is not None
            }
            short = sorted(name for name in demand if demand[name] > left.get(name, demand[name]))
            if short:
                names = ", ".join(f"insufficient {name}" for name in short)
                return Opinion(
                    Vote.REJECT,
                    f"queue resource quota insufficient: {names}",
                    tuple((name, demand[name], max(0, left[name])) for name in short),
                )
        return None

    def enqueued(self, job: Job) -> None:
        """Reserve the requests of a job that entered its queue."""
        self._reserve(job.queue, _waiting(job))

    def changed(self, job: Job, task_class: TaskClass, count: int) -> None:
        """Add placed tasks; a negative count removes them."""
        if task_class.device_claims and job.queue in self._lines:
            self._hold(job.queue, task_class.device_claims, count)


def _waiting(job: Job) -> tuple[str, ...]:
    """Return the claims of the pending pods in a job's minimum, in order of pod names.

    Minima of roles go before that of the job, as in Volcano.
    """
    record = engine_record(job, EngineJob)
    minima = record.min_task_member
    left = Counter(minima) if minima else Counter({"": record.min_available})
    claims: dict[str, None] = {}
    for task in sorted(record.tasks.values(), key=lambda each: (each.name, each.uid)):
        role = task.role if minima else ""
        if task.task_class.device_claims and left[role] > 0:
            left[role] -= 1
            if task.status is TaskStatus.PENDING:
                claims.update(dict.fromkeys(task.task_class.device_claims))
    return tuple(claims)


def _limits(queue: Queue) -> dict[str, int]:
    return {
        name: amount
        for name, amount in queue.capability.items()
        if name.startswith(QUOTA) or f".{QUOTA}" in name
    }
