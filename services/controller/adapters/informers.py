"""The controller's copy of the cluster, folded from STATE and from responses to its own writes.

Rules: for one uid the higher resourceVersion wins; another uid under a name is a deletion and an
addition; a uid that was deleted, by a response or by STATE, never comes back. So a reconciliation
after a write sees that write before its fact arrives.

Each kind has an `IndexedStore`. A kind on which others depend has a handler that returns the
objects to reconcile after a change (`Touched`); for any other kind the object itself is reconciled.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

import msgspec

from services.controller.adapters.records import JobRecord
from services.controller.adapters.store import (
    Identity,
    ObjectChange,
    RecentDeletions,
    StoreKey,
    Touched,
    identity_of,
)
from services.controller.adapters.stores import (
    StoredPod,
    Stores,
    is_for_record,
    is_same_queue,
    metadata_to_store,
    node_changed,
    node_need_changed,
    node_to_store,
    owner_key,
    owners_of,
    pod_to_store,
    quota_changed,
    request_changed,
    stored_load,
    target_of,
)
from services.controller.job.facts import JobFacts, PodView, pod_view
from services.controller.queue.plan import SHUT
from shared.api import kinds
from shared.api.batch import Command, Job, JobEvent
from shared.api.core import Node, Pod, PodPhase
from shared.api.kinds import Kind
from shared.api.scheduling import PodGroup, Queue, podgroup_of
from shared.api.storage import PersistentVolumeClaim
from shared.api.workloads import Workload
from shared.contracts.messages import Fact, Op
from shared.kube.decode import PartialObject
from shared.model.numbers import whole

_URGENT: Final = frozenset(
    {JobEvent.POD_FAILED, JobEvent.POD_EVICTED, JobEvent.TASK_COMPLETED, JobEvent.TASK_FAILED}
)


class Informers(Stores):
    """The stores, changed by facts and by responses to own writes."""

    def __init__(self, *, scheduler_names: Collection[str], loads: bool = False) -> None:
        """`scheduler_names`: whose pods without a group are bare; `loads`: follow CPU per node."""
        super().__init__()
        self.oversized: dict[str, str] = {}
        """Jobs too large for STATE: key → uid. Nothing but their existence is known."""
        self._handlers: dict[str, Callable[[ObjectChange[Any], Touched], None]] = {
            **{token: partial(_itself_changed, kinds.KINDS[token]) for token in self.by_kind},
            kinds.JOB.token: self._job_changed,
            kinds.POD.token: self._pod_changed,
            kinds.PODGROUP.token: self._group_changed,
            kinds.QUEUE.token: self._queue_changed,
            kinds.COMMAND.token: self._command_changed,
            kinds.PRIORITYCLASS.token: _nothing_changed,
            kinds.PVC.token: self._claim_changed,
            kinds.RESOURCEQUOTA.token: quota_changed,
            kinds.NODE.token: node_changed,
            kinds.PROVISIONINGREQUEST.token: request_changed,
            **dict.fromkeys(self.owners, self._owner_changed),
        }
        self._scheduler_names = tuple(scheduler_names)
        self._loads = loads
        self._waiting_for: dict[str, dict[str, None]] = {}
        """Key of a missing claim → keys of the jobs that need it."""
        self._by_owner: dict[str, JobRecord] = {}
        """By namespace and uid, see `owner_key`."""
        self._ended: dict[str, dict[str, PodView]] = defaultdict(dict)
        """Owner key of a job that STATE does not show yet → its deleted pods that had succeeded."""
        self._deletions = RecentDeletions()
        self._not_replayed: dict[StoreKey, str] | None = None
        self._own_writes: dict[StoreKey, Identity] = {}
        """Objects that this process has created, until STATE shows them."""
        self._on_change: list[Callable[[Touched], None]] = []

    def on_change(self, call: Callable[[Touched], None]) -> None:
        """Register `call` for the objects that each change touches."""
        self._on_change.append(call)

    def request(self) -> AbstractContextManager[None]:
        """Use around a request; pass its response to `written` or `deleted`.

        A deletion that STATE reports meanwhile counts, however late the response is.
        """
        return self._deletions.request()

    def fold(self, facts: Iterable[Fact]) -> Touched:
        """Take facts; ValidationError names an object that the cache should not have published."""
        touched = Touched()
        for fact in facts:
            ref = StoreKey(fact.kind, fact.key)
            if self._not_replayed is not None:
                self._not_replayed.pop(ref, None)
            if (made := self._own_writes.get(ref)) is not None and made.uid == fact.uid:
                del self._own_writes[ref]
            if fact.op is Op.PUT:
                self._put_fact(fact, touched)
            elif fact.op is Op.OVERSIZED:
                self.quarantined[ref] = fact.uid
                if fact.kind == kinds.JOB.token:
                    self.oversized[fact.key] = fact.uid
                    touched.add(kinds.JOB, fact.key)
            elif fact.op is Op.DELETE:
                if fact.kind == kinds.POD.token and bytes(fact.body) != b"null":
                    self._pod_ended(fact, touched)
                self._drop(fact.kind, fact.key, fact.uid, touched, as_of=whole(fact.rv))
                self._gone.pop(fact.uid, None)
                self.quarantined.pop(ref, None)
        return self._notify(touched)

    def written(self, kind: Kind, body: bytes) -> Touched:
        """Fold an object from a response of the API server, usually to our own write.

        A job that is too large for STATE stays unknown, as it is to any other process.
        """
        touched, found = Touched(), kinds.decode(kind, body)
        identity = identity_of(found)
        if identity.uid in self._deletions:
            return touched
        if kind is not kinds.JOB or identity.key not in self.oversized:
            if self.by_kind[kind.token].uid_of(identity.key) != identity.uid:
                self._own_writes[StoreKey(kind.token, identity.key)] = identity
            self._put(kind.token, identity, found, touched)
        return self._notify(touched)

    def deleted(self, kind: Kind, key: str, uid: str) -> Touched:
        """Fold the confirmation that our own delete has removed an object."""
        touched = Touched()
        if uid not in self._deletions:
            self._gone[uid] = StoreKey(kind.token, key)
        self._drop(kind.token, key, uid, touched)
        return self._notify(touched)

    def passed(self, covered: Mapping[str, str]) -> Touched:
        """Drop own objects that STATE should show by now and does not: they were deleted.

        `covered` maps the token of a kind to the resourceVersion up to which STATE has its changes.
        """
        touched = Touched()
        for ref, made in list(self._own_writes.items()):
            if made.rv <= (whole(covered.get(ref.token, "")) or 0):
                del self._own_writes[ref]
                self._drop(ref.token, ref.key, made.uid, touched)
        return self._notify(touched)

    def admitted(self, group: Identity) -> Touched:
        """Record that scheduling has admitted a Job's PodGroup, which its status does not show yet.

        This holds for the version that was decided on; any other version shows its own phase.
        """
        touched = Touched()
        record = self._record_of(self.groups[group.key]) if self.groups.is_at(group) else None
        if record is not None:
            record.admitted = True
            touched.add(kinds.JOB, record.key, urgent=True)
        return self._notify(touched)

    def begin_resync(self) -> None:
        """Record that STATE is read again: objects that it has not named by `complete` are gone."""
        self.quarantined.clear()
        self._not_replayed = {
            StoreKey(token, key): uid
            for token, store in self.by_kind.items()
            for key, uid in store.uids()
        }

    def complete(self) -> Touched:
        """Record that STATE was read completely; drop objects that it no longer holds."""
        touched = Touched()
        for (token, key), uid in (self._not_replayed or {}).items():
            self._drop(token, key, uid, touched)
        self._not_replayed = None
        self._ended.clear()
        return self._notify(touched)

    def facts_of(self, record: JobRecord) -> JobFacts:
        """Return what a pass over a job reads."""
        queue = record.job.spec.queue
        values = {name: found.value for name, found in self.priorities.items()}
        return JobFacts(
            job=record.job,
            problems=record.problems,
            pods=record.pods,
            group=record.group,
            admitted=record.admitted,
            queue=self.queues.get(queue),
            queue_is_leaf=all(q.spec.parent != queue for q in self.queues.values()),
            commands=tuple(c for c in self.commands_to(record.key) if is_for_record(c, record)),
            desired_group=record.desired_group(values),
            completed=record.completed,
            claims_missing=self._claims_missing(record.job),
            applied=record.applied,
            interrupted=record.interrupted,
        )

    # How objects are folded

    def _put_fact(self, fact: Fact, touched: Touched) -> None:
        """Fold a fact; a fact of our own write, like most facts about jobs, is not decoded."""
        identity = Identity(fact.key, fact.uid, int(fact.rv))
        if fact.key in self.oversized or not self.by_kind[fact.kind].has(identity):
            found = kinds.decode(kinds.KINDS[fact.kind], fact.body)
            self._put(fact.kind, identity, found, touched)

    def _put(self, token: str, identity: Identity, found: Any, touched: Touched) -> None:  # noqa: ANN401 - the kind's view
        if identity.uid in self._gone:
            return
        if token == kinds.JOB.token:
            self.oversized.pop(identity.key, None)
        store, ref = self.by_kind[token], StoreKey(token, identity.key)
        if not store.has(identity):
            stored = self._held(found, identity)
            if stored is None:
                change, self.quarantined[ref] = store.drop(identity.key), identity.uid
            else:
                change = store.put(identity, stored)
                self.quarantined.pop(ref, None)
            self._handle(token, change, touched)

    def _drop(
        self, token: str, key: str, uid: str, touched: Touched, *, as_of: int | None = None
    ) -> None:
        """Drop an object of `uid`, or any that is older than the version `as_of`.

        Facts may be skipped, so the last one may be about a later object of that name. An object
        that this process has written since is newer, and stays.
        """
        store = self.by_kind[token]
        stored_uid, change = store.uid_of(key), store.drop(key, uid, as_of=as_of)
        self._deletions.add(uid)
        if change is not None:
            self._deletions.add(stored_uid)
        if token == kinds.JOB.token:
            self.oversized.pop(key, None)
        self._handle(token, change, touched)

    def _handle(self, token: str, change: ObjectChange[Any] | None, touched: Touched) -> None:
        """Call the handler of the kind with a change; a replaced uid is two changes."""
        if change is None:
            return
        handler = self._handlers[token]
        if change.replaced:
            self._deletions.add(change.replaced)
            handler(ObjectChange(change.key, change.before, None), touched)
            handler(ObjectChange(change.key, None, change.after), touched)
        else:
            handler(change, touched)

    def _notify(self, touched: Touched) -> Touched:
        for call in self._on_change if touched else ():
            call(touched)
        return touched

    def _held(self, found: Any, known: Identity) -> Any:  # noqa: ANN401 - the kind's view
        """Return the part of an object to store; None for a pod that does not matter."""
        match found:
            case Pod():
                before = self.pods.of_uid(known.key, known.uid)
                return pod_to_store(found, self._scheduler_names, before, loads=self._loads)
            case Job():
                return self._held_job(found, known)
            case Node():
                return node_to_store(found)
            case PersistentVolumeClaim():
                return metadata_to_store(found.metadata)
            case _:
                return found

    # Jobs

    def _held_job(self, job: Job, known: Identity) -> Job:
        """Return a job with its defaults, as its record has it."""
        record = self.jobs.get(known.key)
        if record is not None and record.uid == known.uid:
            record.take(job)
            return record.job
        at = owner_key(job.metadata.namespace, known.uid)
        pods = self.pods.by_index("job", at)
        views = {pod.view.name: pod.view for pod in pods if pod.view is not None}
        record = JobRecord(job, views, scheduler_name=self._scheduler_names[0])
        record.group = self._group_of(record)
        record.ended = self._ended.pop(at, {})
        self.jobs[known.key] = self._by_owner[at] = record
        return record.job

    def _job_changed(self, change: ObjectChange[Job], touched: Touched) -> None:
        key, before, after = change.key, change.before, change.after
        for job in (before, after):
            for ref in owners_of(job) if job is not None else ():
                touched.add(kinds.KINDS[ref.token], ref.key)
        if before is not None and after is None:
            meta = before.metadata
            self._by_owner.pop(owner_key(meta.namespace, meta.uid), None)
            if key in self.jobs and self.jobs[key].uid == meta.uid:
                del self.jobs[key]
        touched.add(kinds.JOB, key, urgent=after is not None)

    # Pods

    def _pod_changed(self, change: ObjectChange[StoredPod], touched: Touched) -> None:
        before, after = change.before, change.after
        for pod in (before, after):
            if pod is not None and pod.group:
                touched.add(kinds.PODGROUP, pod.group)
        if self._loads and stored_load(before) != stored_load(after):
            touched.add(kinds.POD, change.key)
        was, now = before.owner_key if before else "", after.owner_key if after else ""
        view = before.view if before else None
        if was and was != now:
            self._note(was, view, None, touched)
            view = None
        if after is not None and now:
            self._note(now, view, after.view, touched)

    def _note(
        self, at: str, before: PodView | None, after: PodView | None, touched: Touched
    ) -> None:
        """Tell the record of a job that a pod of it has changed."""
        record = self._by_owner.get(at)
        if record is None:
            return
        ours = before is not None and before.uid in self._gone
        requests = record.changed(before, after, ours=ours)
        urgent = bool(requests) and any(r.event in _URGENT for r in requests)
        touched.add(kinds.JOB, record.key, urgent=urgent)

    def _pod_ended(self, fact: Fact, touched: Touched) -> None:
        """Record from a tombstone that a job's pod had succeeded, if that is new (ADR 10)."""
        pod = kinds.decode(kinds.POD, fact.body)
        found, stored = pod_view(pod), self.pods.get(fact.key)
        other = stored is not None and stored.owner_key and not self.pods.of_uid(fact.key, fact.uid)
        if found is None or other or fact.uid in self._gone:
            return
        at = owner_key(pod.metadata.namespace, found[0])
        view = msgspec.structs.replace(found[1], rv=int(fact.rv))
        record = self._by_owner.get(at)
        if record is None:
            self._ended[at][view.name] = view
            return
        known = stored.view if stored is not None else None
        if known is None or known.phase != PodPhase.SUCCEEDED or known.deleting:
            record.note_tombstone(view)
            touched.add(kinds.JOB, record.key)
        elif not record.owned:
            record.note_tombstone(view)

    def _owner_changed(self, change: ObjectChange[Workload], touched: Touched) -> None:
        """Touch the groups of an owner's bare pods, which are deleted with the owner."""
        if change.after is not None:
            for group in self.groups_of_owner(change.after):
                touched.add(kinds.PODGROUP, group)

    # PodGroups

    def _group_changed(self, change: ObjectChange[PodGroup], touched: Touched) -> None:
        group = change.present
        queue = self.queues.get(group.spec.queue)
        if queue is not None and queue.status.state in SHUT:
            touched.add(kinds.QUEUE, group.spec.queue)  # its groups say when it is closed (Q02)
        if self.is_bare_group(change.key):
            touched.add(kinds.PODGROUP, change.key)
        node_need_changed(change, touched)
        record = self._record_of(group)
        if record is not None:
            record.group_changed(self._group_of(record))
            touched.add(kinds.JOB, record.key, urgent=True)

    def _record_of(self, group: PodGroup) -> JobRecord | None:
        """Return the job that a PodGroup was made for."""
        owner = group.metadata.controller
        return self._by_owner.get(owner_key(group.metadata.namespace, owner.uid)) if owner else None

    def _group_of(self, record: JobRecord) -> PodGroup | None:
        """Return a job's PodGroup: named by name and uid, or, as formerly, by name alone (J27).

        The latter only if it is the job's: a user may have a group of that name, too.
        """
        found = self.groups.get(podgroup_of(record.key, record.uid))
        if found is not None:
            return found
        old = self.groups.get(record.key)
        return old if old is not None and old.metadata.is_controlled_by(record.uid) else None

    # Claims, queues, Commands

    def _claims_missing(self, job: Job) -> tuple[str, ...]:
        """Return the claims that a job waits for; it is touched when they come."""
        namespace = job.metadata.namespace
        volumes = (volume for volume in job.spec.volumes if volume.volume_claim is msgspec.UNSET)
        named = (volume.volume_claim_name for volume in volumes)
        missing = tuple(n for n in named if n and f"{namespace}/{n}" not in self.claims)
        for name in missing:
            self._waiting_for.setdefault(f"{namespace}/{name}", {})[job.metadata.key] = None
        return missing

    def _claim_changed(self, change: ObjectChange[PartialObject], touched: Touched) -> None:
        if change.after is not None:
            for job in self._waiting_for.pop(change.key, ()):
                touched.add(kinds.JOB, job)

    def _queue_changed(self, change: ObjectChange[Queue], touched: Touched) -> None:
        """Touch a queue, and jobs without a PodGroup that may have waited for it."""
        name, before, after = change.key, change.before, change.after
        if before is not None and after is not None and is_same_queue(before, after):
            return
        touched.add(kinds.QUEUE, name)
        for key, record in self.jobs.items() if after is not None else ():
            if record.group is None and record.job.spec.queue == name:
                touched.add(kinds.JOB, key)

    def _command_changed(self, change: ObjectChange[Command], touched: Touched) -> None:
        """Touch the job of a new Command; else the queues, which report misdirected Commands."""
        if change.after is not None:
            token, key = target_of(change.after)
            is_job = token == kinds.JOB.token
            touched.add(kinds.JOB if is_job else kinds.QUEUE, key, urgent=is_job)


def _itself_changed(kind: Kind, change: ObjectChange[Any], touched: Touched) -> None:
    touched.add(kind, change.key)


def _nothing_changed(change: ObjectChange[Any], touched: Touched) -> None:
    """Touch nothing: the jobs of a PriorityClass are not reconciled when its value changes."""
