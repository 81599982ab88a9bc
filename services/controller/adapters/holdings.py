"""What the controller holds besides jobs and their parts: CronJobs, flows, templates, the network.

Part of the replica, which owns the rules by which facts and own writes are folded. Each object here
stands for itself; what belongs together is found by two indexes, of jobs by their controlling owner
and by the template that they were made from.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from shared.api import keys, kinds
from shared.api.base import View
from shared.api.batch import Job
from shared.api.core import Node
from shared.api.cron import CronJob
from shared.api.flow import JobFlow, JobTemplate
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.api.topology import HyperNode

KINDS: Final = (
    kinds.CRONJOB, kinds.JOBFLOW, kinds.JOBTEMPLATE, kinds.HYPERNODE, kinds.NODE,
)  # fmt: skip
"""Kinds that are held here."""

_OWNERS: Final = {(kind.api_version, kind.kind): kind for kind in (kinds.CRONJOB, kinds.JOBFLOW)}


class Place(msgspec.Struct, frozen=True):
    """An object: its kind's token and its key."""

    token: str
    key: str


class Labelled(View, frozen=True, kw_only=True):
    """A node, as far as HyperNodes look at it."""

    metadata: ObjectMeta = ObjectMeta()


class _Held(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


H = TypeVar("H", bound=_Held)


class Shelf(Generic[H]):
    """Objects of one kind by key."""

    def __init__(self) -> None:
        self._objects: dict[str, H] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the keys."""
        return iter(self._objects)

    def get(self, key: str) -> H | None:
        """Return an object, if it is there."""
        return self._objects.get(key)

    def items(self) -> Iterable[tuple[str, H]]:
        """Return keys and objects."""
        return self._objects.items()

    def put(self, found: H) -> bool:
        """Take an object; returns whether it is news."""
        meta = found.metadata
        known = self._objects.get(meta.key)
        if known is not None and known.metadata.uid == meta.uid and _rv(known) >= _rv(found):
            return False
        self._objects[meta.key] = found
        return True

    def drop(self, key: str, uid: str) -> bool:
        """Drop an object; returns whether it was there."""
        known = self._objects.get(key)
        if known is None or known.metadata.uid != uid:
            return False
        del self._objects[key]
        return True


def _rv(found: _Held) -> int:
    return int(found.metadata.resource_version or 0)


class Holdings:
    """See the module."""

    def __init__(self) -> None:
        self.crons: Shelf[CronJob] = Shelf()
        self.flows: Shelf[JobFlow] = Shelf()
        self.templates: Shelf[JobTemplate] = Shelf()
        self.hypernodes: Shelf[HyperNode] = Shelf()
        self.nodes: Shelf[Labelled] = Shelf()
        self._shelves: Mapping[str, Shelf[Any]] = {
            kinds.CRONJOB.token: self.crons,
            kinds.JOBFLOW.token: self.flows,
            kinds.JOBTEMPLATE.token: self.templates,
            kinds.HYPERNODE.token: self.hypernodes,
            kinds.NODE.token: self.nodes,
        }
        self._owned: dict[str, dict[str, Job]] = defaultdict(dict)
        self._made_from: dict[str, dict[str, Job]] = defaultdict(dict)
        self._jobs: dict[str, Job] = {}

    def put(self, token: str, found: Any) -> Iterator[Place]:  # noqa: ANN401 - the kind's view
        """Take an object; yields what deserves a look."""
        if isinstance(found, Node):
            found = Labelled(metadata=found.metadata)
            known = self.nodes.get(found.metadata.key)
            if known is not None and known.metadata.labels == found.metadata.labels:
                self.nodes.put(found)
                return
        if self._shelves[token].put(found):
            yield Place(token, found.metadata.key)

    def drop(self, token: str, key: str, uid: str) -> Iterator[Place]:
        """Drop an object; yields what deserves a look."""
        if self._shelves[token].drop(key, uid):
            yield Place(token, key)

    def uids(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the token, key and uid of everything that is held."""
        for token, shelf in self._shelves.items():
            for key, found in shelf.items():
                yield (token, key), found.metadata.uid

    # Jobs and whose they are

    def put_job(self, job: Job) -> Iterator[Place]:
        """Take a job; yields the objects that it belongs to."""
        key = job.metadata.key
        known = self._jobs.get(key)
        if known is not None:
            yield from self.drop_job(key, known.metadata.uid)  # its labels may have been others
        for index, name, place in self._relations(job):
            index[name][key] = job
            self._jobs[key] = job
            yield place

    def drop_job(self, key: str, uid: str) -> Iterator[Place]:
        """Drop a job; yields the objects that it belonged to."""
        job = self._jobs.get(key)
        if job is None or job.metadata.uid != uid:
            return
        del self._jobs[key]
        for index, name, place in self._relations(job):
            index[name].pop(key, None)
            if not index[name]:
                del index[name]
            yield place

    def jobs_of(self, owner_uid: str) -> list[Job]:
        """Return the jobs that an object controls, by name."""
        return _by_name(self._owned.get(owner_uid, {}))

    def owner_of(self, job: Job) -> CronJob | JobFlow | None:
        """Return the object here that controls a job, if there is one."""
        ref = job.metadata.controller
        if ref is None:
            return None
        key = f"{job.metadata.namespace}/{ref.name}"
        owners: tuple[CronJob | JobFlow | None, ...] = (self.crons.get(key), self.flows.get(key))
        return next((o for o in owners if o is not None and o.metadata.uid == ref.uid), None)

    def jobs_at(self, place: Place) -> list[Job]:
        """Return the jobs that the object at a place controls, by name."""
        owner = self._shelves[place.token].get(place.key)
        return self.jobs_of(owner.metadata.uid) if owner is not None else []

    def jobs_from(self, template_key: str) -> list[Job]:
        """Return the jobs that say that they were made from a template, by name."""
        return _by_name(self._made_from.get(template_key, {}))

    def _relations(self, job: Job) -> Iterator[tuple[dict[str, dict[str, Job]], str, Place]]:
        meta = job.metadata
        owner = meta.controller
        kind: Kind | None = None
        if owner is not None:
            kind = _OWNERS.get((owner.api_version, owner.kind))
        if owner is not None and kind is not None:
            place = Place(kind.token, f"{meta.namespace}/{owner.name}")
            yield self._owned, owner.uid, place
        namespace, dot, name = meta.labels.get(keys.CREATED_BY_TEMPLATE, "").partition(".")
        if dot and namespace == meta.namespace:
            key = f"{namespace}/{name}"
            yield self._made_from, key, Place(kinds.JOBTEMPLATE.token, key)


def _by_name(jobs: Mapping[str, Job]) -> list[Job]:
    return [job for _, job in sorted(jobs.items())]
