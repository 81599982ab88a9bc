"""An elector for the installation: takes, renews and releases its Leases in the API server.

There is one Lease for scheduling and one for the controllers, as Volcano has them. So neither
Volcano and Pumice nor two installations of Pumice act at the same time. An installation has one
bus. The cache's leader holds the Leases for the whole installation, and the holder is named after
the bus: a replica that becomes the leader finds its own name in the record and goes on at once.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Never

import msgspec

from shared.api.kinds import LEASE, NAMESPACE
from shared.api.time import format_micro
from shared.bus.nats import NatsBus
from shared.contracts import codec
from shared.contracts.messages import ClusterLeaseStatus
from shared.contracts.subjects import Subjects
from shared.contracts.versions import ContractError
from shared.election.cluster_lease import LeaseCandidate, LeaseSpec, LeaseTimes, released
from shared.kube import leases
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.kube.installation import HOLDER_PREFIX, INSTALLATION
from shared.kube.leases import ClusterLease
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Gone, PumiceError, Retryable
from shared.runtime.logs import Logger
from shared.runtime.tasks import TaskGroup

HELD_BY: Final = "pumice.dev/held-by"
"""Annotation of a Lease of ours: the process that renews it."""
_RETRY_S: Final = 0.5
"""Delay after a failure."""
_CONFLICT_RETRY_S: Final = 0.05
_POLL_S: Final = 0.1
_IDENTITY_CHECK_S: Final = 2.0
"""How often a replica checks whether it is still on the same bus."""
_SHUTDOWN_WAIT_S: Final = 1.5
"""How long the last cache waits for the other services to end, to give the Leases back."""


class ClusterLeaseElector:
    """An elector for one Lease: acquires it when it is free, and renews it."""

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        name: str,
        times: LeaseTimes,
        instance: str,
        installation: str,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._times = times
        self._annotations = {HELD_BY: instance, INSTALLATION: installation or None}
        self._clock = clock
        self._key = f"{namespace}/{name}"
        self._log = log.bind(lease=self._key)
        self._candidate = LeaseCandidate("", times)
        self._found: ClusterLease | None = None
        """The Lease as it was last read or written; None: it has to be read."""
        self._is_unanswered = False
        """Whether it is not known if the last write was stored."""
        self._term = ""
        self._until = 0.0
        self._other = ""
        self._reason = "it has not been asked for yet"

    def status(self) -> ClusterLeaseStatus:
        """Return the state of the Lease at this moment, for markers."""
        left_s = self._until - self._clock.monotonic()
        if left_s > 0:
            return ClusterLeaseStatus(lease=self._key, term=self._term, left_s=left_s)
        return ClusterLeaseStatus(lease=self._key, holder=self._other, reason=self._reason)

    @property
    def may_be_held(self) -> bool:
        """Return whether the Lease is ours at this moment, as far as is known."""
        return self._is_unanswered or self._until > self._clock.monotonic()

    async def keep(
        self, identity: str, *, former: frozenset[str], changed: Callable[[], None]
    ) -> Never:
        """Acquire the free Lease and renew it; call `changed` after each new `status`.

        A Lease with a holder among the names `former` is ours as well.
        """
        if (self._candidate.identity, self._candidate.former) != (identity, former):
            self._candidate = LeaseCandidate(identity, self._times, former=former)
        self._found = None
        while True:
            before = (self.status().term, self._other)
            wait_s = await self._try_acquire_or_renew()
            if (self.status().term, self._other) != before:
                changed()
            await self._clock.sleep(wait_s)

    async def release(self) -> None:
        """Release the Lease if it is ours, so that another can take it at once. Raises PumiceError.

        The end of this process may have cut short a write that the server stores nevertheless, so
        the Lease is read again.
        """
        self._found, self._until, self._is_unanswered = None, 0.0, False
        while (found := await self._read()) and self._is_ours(found):
            try:
                await self._write(found, released(found.spec, time=format_micro(self._clock.now())))
            except Conflict:
                continue  # another write was in between
            self._log.info("lease_given_back")
            return

    def _is_ours(self, lease: ClusterLease) -> bool:
        return lease.spec.holder_identity == self._candidate.identity

    async def _try_acquire_or_renew(self) -> float:
        """Try to acquire or renew the Lease; return how long to wait before the next try."""
        try:
            return await self._acquire_or_renew()
        except (Conflict, Gone):
            self._found, self._is_unanswered = None, False
            return _CONFLICT_RETRY_S
        except (PumiceError, TimeoutError, msgspec.DecodeError) as error:
            self._found = None
            self._failed(str(error) or "no answer of the API server in time")
            return min(_RETRY_S, self._times.retry_s)

    async def _acquire_or_renew(self) -> float:
        found = self._found or await self._read()
        spec = found.spec if found else None
        other = self._candidate.other_holder(spec, now=self._clock.monotonic())
        if other:
            self._found = None
            self._note_other_holder(_describe(other, found))
            return self._times.retry_s
        desired = self._candidate.acquired(spec, time=format_micro(self._clock.now()))
        sent_at = self._clock.monotonic()
        self._is_unanswered = True
        self._found = await self._write(found, desired)
        self._is_unanswered = False
        self._acquired(self._found, until=sent_at + self._times.deadline_s)
        return self._times.renew_s

    def _acquired(self, lease: ClusterLease, *, until: float) -> None:
        term = f"{lease.metadata.uid}.{lease.spec.lease_transitions or 0}"
        if term != self._term or self._until < self._clock.monotonic():
            self._log.info("lease_held", holder=self._candidate.identity, term=term)
        self._term, self._until, self._other, self._reason = term, until, "", ""

    def _note_other_holder(self, other: str) -> None:
        if other != self._other:
            self._log.warning(
                "lease_held_by_another",
                holder=other,
                hint=f"lease {self._key} is held by {other}: nothing is written until it is free",
            )
        self._other, self._reason, self._until = other, f"held by {other}", 0.0

    def _failed(self, reason: str) -> None:
        if reason != self._reason:
            self._log.warning("lease_not_renewed", reason=reason)
        self._reason = reason

    async def _read(self) -> ClusterLease | None:
        async with self._limit():
            return await leases.find(self._kube, self._namespace, self._name)

    async def _write(self, found: ClusterLease | None, spec: LeaseSpec) -> ClusterLease:
        """Write a Lease upon the version that was found. Raises Conflict when it has changed."""
        annotations = (
            self._annotations if spec.holder_identity else dict.fromkeys(self._annotations)
        )
        async with self._limit():
            if found is None:
                return await self._create(spec)
            return await leases.write(
                self._kube,
                self._namespace,
                self._name,
                spec,
                upon=found,
                annotations=annotations,
            )

    async def _create(self, spec: LeaseSpec) -> ClusterLease:
        """Create the Lease, and its namespace if it does not exist."""
        annotations = {name: value for name, value in self._annotations.items() if value}
        body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self._name, "annotations": annotations},
            "spec": spec,
        }
        try:
            return leases.read(await self._kube.create(LEASE, self._namespace, body))
        except Gone:
            self._log.info("namespace_made", namespace=self._namespace)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        with suppress(AlreadyExists):  # the elector of the other Lease may be faster
            await self._kube.create(NAMESPACE, "", namespace)
        return leases.read(await self._kube.create(LEASE, self._namespace, body))

    def _limit(self) -> asyncio.Timeout:
        """Limit one request, so that there is time for another before the renewal is due."""
        return asyncio.timeout(self._times.renew_s)


def _describe(other: str, found: ClusterLease | None) -> str:
    """Return a holder's name; for an installation of Pumice with the process that renews."""
    process = found.metadata.annotations.get(HELD_BY, "") if found else ""
    return f"{other} ({process})" if process and other.startswith(HOLDER_PREFIX) else other


class InstallationElector:
    """An elector for all Leases of the installation; without any, every service may act.

    `run` is a part of the service if there are Leases.
    """

    name: Final = "cluster-leases"

    def __init__(
        self,
        electors: Mapping[str, ClusterLeaseElector],
        kube: Kube,
        bus: NatsBus,
        *,
        stream: str,
        subjects: Subjects,
        instance: str,
        clock: Clock,
        log: Logger,
    ) -> None:
        """`electors` by role (`messages.SCHEDULING`, …); `stream` has the members.

        `kube` is the client that the electors use, and is closed by `end`.
        """
        self._electors = dict(electors)
        self._kube = kube
        self._bus = bus
        self._stream = stream
        self._subjects = subjects
        self._instance = instance
        self._clock = clock
        self._log = log
        self._names: set[str] = set()
        """The holder's names so far: the name changes when the bus loses its data."""

    def statuses(self) -> dict[str, ClusterLeaseStatus] | msgspec.UnsetType:
        """Return the states of the Leases by role, for a marker."""
        statuses = {role: elector.status() for role, elector in self._electors.items()}
        return statuses or msgspec.UNSET

    async def keep(self, *, changed: Callable[[], None]) -> None:
        """Acquire and renew the Leases until cancelled, for the length of a leadership term."""
        if not self._electors:
            return
        identity = await self._identity()
        former = frozenset(self._names - {identity})
        async with TaskGroup() as tasks:
            for role, elector in self._electors.items():
                keeping = elector.keep(identity, former=former, changed=changed)
                tasks.create_task(keeping, name=f"lease {role}")

    async def run(self) -> None:
        """Note the holder's name every two seconds, whether this replica leads or not.

        After the bus has lost its data, the new leader need not wait for a Lease that another
        replica held under the old name.
        """
        while True:
            await self._identity()
            await self._clock.sleep(_IDENTITY_CHECK_S)

    async def end(self) -> None:
        """Release the Leases at the end of the process, unless another process needs them."""
        try:
            if any(each.may_be_held for each in self._electors.values()) and await self._is_last():
                for elector in self._electors.values():
                    await elector.release()
        except (PumiceError, TimeoutError) as error:
            self._log.info("leases_not_given_back", reason=str(error))
        finally:
            await self._kube.close()

    async def _identity(self) -> str:
        """Return the holder's name: the same for every replica on this bus, and no other."""
        while True:
            try:
                made = (await self._bus.info(self._stream)).created
            except Retryable:
                await self._clock.sleep(_POLL_S)
            else:
                digest = hashlib.sha256(made.encode()).hexdigest()[:10]
                name = f"{HOLDER_PREFIX}{self._subjects.cluster}-{digest}"
                self._names.add(name)
                return name

    async def _is_last(self) -> bool:
        """Return whether no other process is left on the bus; waits a moment for those that end."""
        latest = self._clock.monotonic() + _SHUTDOWN_WAIT_S
        while others := await self._others():
            if "cache" in others or self._clock.monotonic() >= latest:
                return False
            await self._clock.sleep(_POLL_S)
        return True

    async def _others(self) -> set[str]:
        """Return the services that other live processes belong to."""
        found = set()
        for message in await self._bus.snapshot(self._stream, [self._subjects.members]):
            try:
                member = codec.decode_member(message.payload)
            except ContractError:
                continue
            if member.accepts and member.instance != self._instance:
                found.add(member.service)
        return found
