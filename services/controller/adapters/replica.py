"""The controller's copy of the world: STATE and the answers to own writes, folded by three rules.

For one uid the higher resourceVersion wins; another uid under a name is a deletion and an addition;
a uid whose deletion was confirmed to us exists no more, whatever STATE still says. So a look that
follows a write sees the write, although its fact comes later, and never acts on what it has changed
itself.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import msgspec

from services.controller.adapters import holdings
from services.controller.adapters.bare_index import BareIndex
from services.controller.adapters.holdings import Holdings
from services.controller.adapters.records import JobRecord
from services.controller.adapters.touched import Touched
from services.controller.job.facts import JobFacts, PodView, pod_view
from services.controller.queue.phases import SHUT
from shared.api import kinds
from shared.api.batch import Job, JobEvent
from shared.api.bus import Command
from shared.api.core import Pod
from shared.api.kinds import Kind
from shared.api.scheduling import PodGroup, PriorityClass, Queue
from shared.api.storage import PersistentVolumeClaim
from shared.api.workloads import Workload
from shared.contracts.messages import Fact, Op
from shared.contracts.subjects import split_key

KINDS = (
    kinds.JOB, kinds.POD, kinds.PODGROUP, kinds.QUEUE, kinds.COMMAND, kinds.PRIORITYCLASS,
    kinds.PVC, *kinds.WORKLOADS, *holdings.KINDS,
)  # fmt: skip
"""What the controller reads of STATE."""

_URGENT = frozenset(
    {JobEvent.POD_FAILED, JobEvent.POD_EVICTED, JobEvent.TASK_COMPLETED, JobEvent.TASK_FAILED}
)


class Replica:
    """Objects by kind, and the jobs put together from them."""

    def __init__(self, *, scheduler_names: Collection[str]) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.queues: dict[str, Queue] = {}
        self.bare = BareIndex(scheduler_names=scheduler_names)
        self.holdings = Holdings()
        self.groups: dict[str, PodGroup] = {}
        self._groups_in: dict[str, set[str]] = defaultdict(set)
        """Queue → keys of the PodGroups that are in it."""
        self.claims: dict[str, str] = {}
        """PersistentVolumeClaims that are there: key → uid (J30)."""
        self.oversized: dict[str, str] = {}
        """Jobs too large for STATE: key → uid. Nothing but their existence is known."""
        self._waiting_for: dict[str, dict[str, None]] = {}
        """Key of a claim that is not there → keys of the jobs that asked for it."""
        self._scheduler_names = tuple(scheduler_names)
        self._by_uid: dict[str, JobRecord] = {}
        self._pods_of: dict[str, dict[str, PodView]] = defaultdict(dict)
        self._pod_at: dict[str, tuple[str, str]] = {}
        self._commands: dict[str, Command] = {}
        self._priorities: dict[str, int] = {}
        self._gone: dict[str, None] = {}
        self._unseen: dict[tuple[str, str], str] | None = None
        self._put: dict[str, Callable[[Any, Touched], None]] = {
            kinds.JOB.token: self._put_job,
            kinds.POD.token: self._put_pod,
            kinds.PODGROUP.token: self._put_group,
            kinds.QUEUE.token: self._put_queue,
            kinds.COMMAND.token: self._put_command,
            kinds.PRIORITYCLASS.token: self._put_priority,
            kinds.PVC.token: self._put_claim,
            **{kind.token: partial(self._put_owner, kind.token) for kind in kinds.WORKLOADS},
            **{kind.token: partial(self._put_other, kind.token) for kind in holdings.KINDS},
        }
        self._drop: dict[str, Callable[[str, str, Touched], None]] = {
            kinds.JOB.token: self._drop_job,
            kinds.POD.token: self._drop_pod,
            kinds.PODGROUP.token: self._drop_group,
            kinds.QUEUE.token: self._drop_queue,
            kinds.COMMAND.token: self._drop_command,
            kinds.PRIORITYCLASS.token: self._drop_priority,
            kinds.PVC.token: self._drop_claim,
            **{kind.token: partial(self._drop_owner, kind.token) for kind in kinds.WORKLOADS},
            **{kind.token: partial(self._drop_other, kind.token) for kind in holdings.KINDS},
        }

    def fold(self, facts: Iterable[Fact]) -> Touched:
        """Take facts; ValidationError names an object that the cache should not have published."""
        touched = Touched()
        for fact in facts:
            if self._unseen is not None:
                self._unseen.pop((fact.kind, fact.key), None)
            if fact.op is Op.PUT:
                if self._is_known(fact):
                    continue
                self._put[fact.kind](kinds.decode(kinds.KINDS[fact.kind], fact.body), touched)
            elif fact.op is Op.OVERSIZED and fact.kind == kinds.JOB.token:
                self.oversized[fact.key] = fact.uid
                touched.job(fact.key, urgent=False)
            elif fact.op is Op.DELETE:
                self._drop[fact.kind](fact.key, fact.uid, touched)
                self._gone.pop(fact.uid, None)
        return touched

    def _is_known(self, fact: Fact) -> bool:
        """Tell whether the answer to an own write has shown what a fact says, or something newer.

        Most facts about jobs and their pods are echoes of own writes, and need no decoding.
        """
        if fact.kind == kinds.POD.token:
            uid, owner = self._pod_at.get(fact.key, ("", ""))
            pod = self._pods_of[owner].get(split_key(fact.key)[1]) if uid == fact.uid else None
            return pod is not None and pod.rv >= int(fact.rv)
        if fact.kind == kinds.JOB.token and fact.key not in self.oversized:
            record = self.jobs.get(fact.key)
            return record is not None and record.uid == fact.uid and record.rv >= int(fact.rv)
        return False

    def written(self, kind: Kind, answer: bytes) -> Touched:
        """Take the API server's answer to an own write."""
        touched = Touched()
        self._put[kind.token](kinds.decode(kind, answer), touched)
        return touched

    def deleted(self, kind: Kind, key: str, uid: str) -> Touched:
        """Take the confirmation that an own delete has removed an object."""
        touched = Touched()
        self._gone[uid] = None
        self._drop[kind.token](key, uid, touched)
        return touched

    def lost_touch(self) -> None:
        """STATE starts anew: what it does not name again until `complete` is gone."""
        self._unseen = dict(self._everything())

    def complete(self) -> Touched:
        """STATE is whole again: drop what it no longer holds."""
        touched = Touched()
        for (kind, key), uid in (self._unseen or {}).items():
            self._drop[kind](key, uid, touched)
        self._unseen = None
        return touched

    def facts_of(self, record: JobRecord) -> JobFacts:
        """Return what a pass over a job reads."""
        queue = record.job.spec.queue
        return JobFacts(
            job=record.job,
            problems=record.problems,
            pods=record.pods,
            group=record.group,
            queue=self.queues.get(queue),
            queue_is_leaf=all(q.spec.parent != queue for q in self.queues.values()),
            commands=tuple(self._commands_for(record)),
            group_wanted=record.group_wanted(self._priorities),
            completed=record.completed,
            claims_missing=self._claims_missing(record.job),
            applied=record.applied,
        )

    def groups_per_queue(self) -> dict[str, int]:
        """Return how many PodGroups are in each queue that has some (Q02)."""
        return {queue: len(keys) for queue, keys in self._groups_in.items() if keys}

    def queue_commands(self) -> tuple[Command, ...]:
        """Return the Commands to queues in the order in which they were given."""
        found = [c for c in self._commands.values() if _is_for(c, kinds.QUEUE)]
        return tuple(sorted(found, key=_given))

    def _commands_for(self, record: JobRecord) -> list[Command]:
        if not self._commands:
            return []
        found = [c for c in self._commands.values() if _targets(c, record)]
        return sorted(found, key=_given)

    def stray_commands(self, key: str) -> list[Command]:
        """Return the Commands to a job of this key that is not known, or not the one meant."""
        if not self._commands:
            return []
        record = self.jobs.get(key)
        found = [c for c in self._commands.values() if _is_for(c, kinds.JOB) and _job_key(c) == key]
        return [c for c in found if record is None or not _targets(c, record)]

    def _everything(self) -> Iterable[tuple[tuple[str, str], str]]:
        for key, record in self.jobs.items():
            yield (kinds.JOB.token, key), record.uid
        for key, (uid, _) in self._pod_at.items():
            yield (kinds.POD.token, key), uid
        for key, uid in self.bare.uids():
            yield (kinds.POD.token, key), uid
        yield from self.bare.owners()
        yield from self.holdings.uids()
        for token, objects in (
            (kinds.PODGROUP.token, self.groups),
            (kinds.QUEUE.token, self.queues),
            (kinds.COMMAND.token, self._commands),
        ):
            for key, found in objects.items():
                yield (token, key), found.metadata.uid
        for name in self._priorities:
            yield (kinds.PRIORITYCLASS.token, name), ""
        for key, uid in self.claims.items():
            yield (kinds.PVC.token, key), uid

    # Jobs

    def _put_job(self, job: Job, touched: Touched) -> None:
        key, uid = job.metadata.key, job.metadata.uid
        if uid in self._gone:
            return
        self.oversized.pop(key, None)
        record = self.jobs.get(key)
        if record is None or record.uid != uid:
            record = JobRecord(job, self._pods_of[uid], scheduler_name=self._scheduler_names[0])
            record.group = self._group_of(uid, job.metadata.namespace, job.metadata.name)
            if key in self.jobs:
                self._by_uid.pop(self.jobs[key].uid, None)
            self.jobs[key] = self._by_uid[uid] = record
        elif not record.take(job):
            return
        touched.job(key, urgent=True)
        touched.others.update(dict.fromkeys(self.holdings.put_job(job)))

    def _drop_job(self, key: str, uid: str, touched: Touched) -> None:
        touched.others.update(dict.fromkeys(self.holdings.drop_job(key, uid)))
        self.oversized.pop(key, None)
        if key in self.jobs and self.jobs[key].uid == uid:
            del self.jobs[key]
            self._by_uid.pop(uid, None)
            touched.job(key, urgent=False)

    # Pods

    def _put_pod(self, pod: Pod, touched: Touched) -> None:
        key, uid = pod.metadata.key, pod.metadata.uid
        if uid in self._gone:
            return
        touched.bare_groups.update(dict.fromkeys(self.bare.put_pod(pod)))
        found = pod_view(pod)
        known = self._pod_at.get(key)
        if known is not None and known[0] != uid:
            self._drop_pod(key, known[0], touched)
        if found is None:
            return
        owner, view = found
        before = self._pods_of[owner].get(view.name)
        if before is not None and before.rv >= view.rv:
            return
        self._pods_of[owner][view.name] = view
        self._pod_at[key] = (uid, owner)
        self._note(owner, before, view, touched)

    def _drop_pod(self, key: str, uid: str, touched: Touched) -> None:
        touched.bare_groups.update(dict.fromkeys(self.bare.drop_pod(key, uid)))
        if self._pod_at.get(key, ("", ""))[0] != uid:
            return
        _, owner = self._pod_at.pop(key)
        pods = self._pods_of[owner]
        before = pods.pop(key.rpartition("/")[2])
        if not pods and owner not in self._by_uid:
            del self._pods_of[owner]
        self._note(owner, before, None, touched)

    def _note(
        self, owner: str, before: PodView | None, after: PodView | None, touched: Touched
    ) -> None:
        record = self._by_uid.get(owner)
        if record is None:
            return
        ours = before is not None and before.uid in self._gone
        requests = record.changed(before, after, ours=ours)
        touched.job(record.key, urgent=any(r.event in _URGENT for r in requests))

    # PodGroups

    def _put_group(self, group: PodGroup, touched: Touched) -> None:
        key, uid = group.metadata.key, group.metadata.uid
        if uid in self._gone:
            return
        known = self.groups.get(key)
        if known is not None and known.metadata.uid == uid and _rv(known) >= _rv(group):
            return
        if known is not None:
            self._groups_in[known.spec.queue].discard(key)
        self.groups[key] = group
        self._groups_in[group.spec.queue].add(key)
        self._touch_queue_of(group, touched)
        self._attach(group, touched)

    def _drop_group(self, key: str, uid: str, touched: Touched) -> None:
        known = self.groups.get(key)
        if known is not None and known.metadata.uid == uid:
            del self.groups[key]
            self._groups_in[known.spec.queue].discard(key)
            self._touch_queue_of(known, touched)
            self._attach(known, touched)

    def _touch_queue_of(self, group: PodGroup, touched: Touched) -> None:
        """Touch the queues if this one is to close: its groups say when it is closed (Q02)."""
        queue = self.queues.get(group.spec.queue)
        if queue is not None and queue.status.state in SHUT:
            touched.queues = True

    def _attach(self, named: PodGroup, touched: Touched) -> None:
        if named.metadata.key in self.bare:
            touched.bare_groups[named.metadata.key] = None
        owner = named.metadata.controller
        record = self._by_uid.get(owner.uid) if owner is not None else None
        if record is not None:
            meta = record.job.metadata
            record.regrouped(self._group_of(record.uid, meta.namespace, meta.name))
            touched.job(record.key, urgent=True)

    def _group_of(self, uid: str, namespace: str, name: str) -> PodGroup | None:
        """Return a job's PodGroup: of its name and uid, or of its name alone, as once (J27).

        The latter only if it is the job's: a user may have a group of that name, too.
        """
        found = self.groups.get(f"{namespace}/{name}-{uid}")
        if found is not None:
            return found
        old = self.groups.get(f"{namespace}/{name}")
        owner = old.metadata.controller if old is not None else None
        return old if owner is not None and owner.uid == uid else None

    # Claims

    def _claims_missing(self, job: Job) -> tuple[str, ...]:
        """Return the claims that a job waits for; it is touched when they come."""
        namespace = job.metadata.namespace
        volumes = (volume for volume in job.spec.volumes if volume.volume_claim is msgspec.UNSET)
        named = (volume.volume_claim_name for volume in volumes)
        missing = tuple(n for n in named if n and f"{namespace}/{n}" not in self.claims)
        for name in missing:
            self._waiting_for.setdefault(f"{namespace}/{name}", {})[job.metadata.key] = None
        return missing

    def _put_claim(self, claim: PersistentVolumeClaim, touched: Touched) -> None:
        key = claim.metadata.key
        self.claims[key] = claim.metadata.uid
        for job in self._waiting_for.pop(key, ()):
            touched.job(job, urgent=False)

    def _drop_claim(self, key: str, uid: str, touched: Touched) -> None:
        del touched
        if self.claims.get(key) == uid:
            del self.claims[key]

    # Owners of bare pods

    def _put_owner(self, token: str, owner: Workload, touched: Touched) -> None:
        touched.bare_groups.update(dict.fromkeys(self.bare.put_owner(token, owner)))

    def _drop_owner(self, token: str, key: str, uid: str, touched: Touched) -> None:
        del touched
        self.bare.drop_owner(token, key, uid)

    # CronJobs, flows, templates, the network

    def _put_other(self, token: str, found: Any, touched: Touched) -> None:  # noqa: ANN401
        if found.metadata.uid not in self._gone:
            touched.others.update(dict.fromkeys(self.holdings.put(token, found)))

    def _drop_other(self, token: str, key: str, uid: str, touched: Touched) -> None:
        touched.others.update(dict.fromkeys(self.holdings.drop(token, key, uid)))

    # Queues, commands, priority classes

    def _put_queue(self, queue: Queue, touched: Touched) -> None:
        name = queue.metadata.name
        known = self.queues.get(name)
        if known is not None and known.metadata.uid == queue.metadata.uid:
            if _rv(known) >= _rv(queue):
                return
            same = known.status.state == queue.status.state
            if same and known.metadata.generation == queue.metadata.generation:
                self.queues[name] = queue
                return
        self.queues[name] = queue
        touched.queues = True
        self._touch_jobs_of(name, touched)

    def _drop_queue(self, key: str, uid: str, touched: Touched) -> None:
        if key in self.queues and self.queues[key].metadata.uid == uid:
            del self.queues[key]
            touched.queues = True

    def _touch_jobs_of(self, queue: str, touched: Touched) -> None:
        """Touch jobs without a PodGroup: they may wait for their queue."""
        for key, record in self.jobs.items():
            if record.group is None and record.job.spec.queue == queue:
                touched.job(key, urgent=False)

    def _put_command(self, command: Command, touched: Touched) -> None:
        if command.metadata.uid in self._gone or command.target is None:
            return
        if _is_for(command, kinds.QUEUE):
            self._commands[command.metadata.key] = command
            touched.queues = True
        elif _is_for(command, kinds.JOB):
            self._commands[command.metadata.key] = command
            touched.job(_job_key(command), urgent=True)

    def _drop_command(self, key: str, uid: str, touched: Touched) -> None:
        del touched
        if key in self._commands and self._commands[key].metadata.uid == uid:
            del self._commands[key]

    def _put_priority(self, found: PriorityClass, touched: Touched) -> None:
        del touched
        self._priorities[found.metadata.name] = found.value

    def _drop_priority(self, key: str, uid: str, touched: Touched) -> None:
        del uid, touched
        self._priorities.pop(key, None)


def _rv(found: PodGroup | Queue | Command) -> int:
    return int(found.metadata.resource_version or 0)


def _given(command: Command) -> tuple[int, str]:
    """Sort Commands as they were given; their times have whole seconds only."""
    return _rv(command), command.metadata.key


def _is_for(command: Command, kind: Kind) -> bool:
    target = command.target
    return target is not None and (target.api_version, target.kind) == (kind.api_version, kind.kind)


def _job_key(command: Command) -> str:
    assert command.target is not None, "a Command without a target is not held"
    return f"{command.metadata.namespace}/{command.target.name}"


def _targets(command: Command, record: JobRecord) -> bool:
    if command.target is None or not _is_for(command, kinds.JOB):
        return False
    return _job_key(command) == record.key and command.target.uid in {"", record.uid}
