"""Laws of plugin `budgets`, on drawn histories of jobs and of what accounting published of them.

Nothing starts once a budget is used up, nothing waits or is stopped before, and a scheduler that
restarts decides the same. What was used is summed here anew, allocation by allocation.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from services.scheduler.engine.plan import Plan
from services.scheduler.policy.states.past_usage import PastUsage
from shared.api import keys, kinds
from shared.api.kinds import Kind
from shared.contracts.usage import PeriodUsage, QueueUsage
from shared.jobs.budgets import read_budgets, sums_needed
from tests.support.laws import count_hits, needs_hits

PARENTS = {"a": "team", "b": "team", "c": "root", "team": "root", "root": ""}
STATED: list[dict[str, Any]] = [
    {"name": "team", "queue": "team", "period": "month", "hours": {"cpu": 40}},
    {"name": "each", "users": ["*"], "period": "week", "hours": {"cpu": 20}},
    {"name": "ann", "queue": "c", "users": ["ann"], "period": "day", "hours": {"cpu": 6}},
    {
        "name": "spaces", "queue": "b", "namespaces": ["*"], "period": "day",
        "hours": {"cpu": 8}, "mode": "preemptable-only",
    },
]  # fmt: skip
BUDGETS = read_budgets(STATED)
CONF = """
actions: "enqueue, allocate, reclaim, backfill"
tiers:
- plugins:
  - {name: gang}
  - {name: budgets, arguments: {budgets: STATED}}
- plugins: [{name: predicates}, {name: proportion}]
""".replace("STATED", json.dumps(STATED))
BEGIN = datetime(2026, 11, 27, 20, tzinfo=UTC).timestamp()
"""A Friday; day, week and month end soon."""
HOUR = 3600.0


class Batch(NamedTuple):
    """A job of one pod."""

    name: str
    queue: str
    user: str
    namespace: str
    cpus: int
    agrees: bool

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class History:
    """A cluster with room for everything, and what accounting knows of it."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.objects: dict[tuple[Kind, str], dict[str, Any]] = {}
        self.waiting: dict[str, Batch] = {}
        self.spans: list[tuple[Batch, list[float]]] = []
        """Jobs that started, with begin, and end once there is one."""
        self.published: dict[str, QueueUsage] = {}
        self.published_at = BEGIN
        self.living = Cluster(CONF, queue=False)
        """A scheduler that never restarts."""
        self.put(kinds.NODE, {"metadata": _meta("n"), "status": {"allocatable": ROOM}})
        for name, parent in PARENTS.items():
            spec = {"weight": 1, **({"parent": parent} if parent else {})}
            queue = {"metadata": _meta(name), "spec": spec, "status": {"state": "Open"}}
            self.put(kinds.QUEUE, queue)

    def put(self, kind: Kind, document: dict[str, Any]) -> None:
        meta = document["metadata"]
        self.objects[kind, f"{meta.get('namespace', '')}/{meta['name']}"] = document
        self.living.put(kind, document)

    def submit(self, job: Batch, phase: str, node: str = "") -> None:
        notes = {keys.USER: job.user} | ({keys.PREEMPTABLE: "true"} if job.agrees else {})
        meta = {**_meta(job.name, job.namespace), "annotations": notes}
        least = {"cpu": str(job.cpus)}
        spec = {"minMember": 1, "queue": job.queue, "minResources": least}
        self.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
        meta = {**_meta(job.name, job.namespace), "annotations": {keys.GROUP_NAME: job.name}}
        containers = [{"name": "main", "resources": {"requests": least}}]
        spec = {"schedulerName": "volcano", "nodeName": node, "containers": containers}
        phase = "Running" if node else "Pending"
        self.put(kinds.POD, {"metadata": meta, "spec": spec, "status": {"phase": phase}})

    def end(self, number: int) -> None:
        job, span = self.spans[number]
        span.append(self.now)
        for kind in (kinds.PODGROUP, kinds.POD):
            if self.objects.pop((kind, job.key), None):
                self.living.delete(kind, job.key, f"uid-{job.key}")

    def publish(self) -> None:
        """Publish sums as accounting does."""
        begins = sums_needed(BUDGETS, self.now)
        sums: Any = defaultdict(lambda: {begin: {} for begin in begins})
        for job, (begin, *end) in self.spans:
            for since in begins:
                hours = job.cpus * max(0.0, (*end, self.now)[0] - max(begin, since)) / HOUR
                users = sums[job.queue][since].setdefault(job.user, {})
                used = users.setdefault(job.namespace, {"cpu": 0.0})
                used["cpu"] += hours
        for queue, periods in sums.items():
            self.published[queue] = QueueUsage(
                queue=queue, at=self.now, half_life_s=HOUR, users={},
                periods=tuple(PeriodUsage(begin=b, users=u) for b, u in periods.items()),
            )  # fmt: skip
        self.published_at = self.now
        self.living.cluster_state.store(PastUsage).replace(dict(self.published))

    def scheduler(self) -> Cluster:
        """Return a scheduler that has read everything anew."""
        world = Cluster(CONF, queue=False)
        for (kind, _), document in self.objects.items():
            world.put(kind, document)
        world.cluster_state.store(PastUsage).replace(dict(self.published))
        return world

    def decide(self) -> Plan:
        """Return the plan of a scheduler that has just started; the other one decides the same."""
        plan = self.scheduler().decide(now=self.now)
        living = self.living.decide(now=self.now)
        assert (binds_of(plan), plan.evictions) == (binds_of(living), living.evictions)
        assert {e.job for e in plan.explanations} == {e.job for e in living.explanations}
        return plan

    def is_used_up(self, job: Batch) -> bool:
        """Return whether a budget keeps a job from starting, by what was published."""
        return any(
            self._used(number, user, namespace) >= float(BUDGETS[number].hours["cpu"])
            for number, user, namespace in _budgets_of(job)
            if not (job.agrees and "mode" in STATED[number])
        )

    def _used(self, number: int, user: str | None, namespace: str | None) -> float:
        span = BUDGETS[number].span(self.now)
        assert span is not None
        hours = 0.0
        for job, (begin, *end) in self.spans:
            if (number, user, namespace) in set(_budgets_of(job)):
                until = min((*end, self.published_at)[0], self.published_at)
                hours += job.cpus * max(0.0, until - max(begin, span.begin)) / HOUR
        return hours


ROOM = {"cpu": "10000", "memory": "1Ti", "pods": "10000"}


def _meta(name: str, namespace: str = "") -> dict[str, Any]:
    uid = f"uid-{namespace}/{name}"
    return {"name": name, "uid": uid, **({"namespace": namespace} if namespace else {})}


def _budgets_of(job: Batch) -> Iterator[tuple[int, str | None, str | None]]:
    """Yield each budget that a job counts against; no two of one queue hold for the same names."""
    queue = job.queue
    while queue:
        for number, budget in enumerate(STATED):
            users = budget.get("users")
            named = users is None or "*" in users or job.user in users
            if budget.get("queue", "root") == queue and named:
                by_space = "namespaces" in budget
                yield number, job.user if users else None, job.namespace if by_space else None
        queue = PARENTS[queue]


jobs = st.builds(
    Batch,
    name=st.just(""),
    queue=st.sampled_from("abc"),
    user=st.sampled_from(["ann", "bob"]),
    namespace=st.sampled_from(["x", "y"]),
    cpus=st.integers(1, 4),
    agrees=st.booleans(),
)
steps = st.tuples(
    st.lists(jobs, max_size=4),
    st.floats(0.1, 9.0),
    st.sets(st.integers(0, 30), max_size=4),
    st.booleans(),
)


@needs_hits(at_least=20)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(course=st.lists(steps, min_size=3, max_size=9), enters=st.booleans())
def test_nothing_starts_after_a_budget_is_used_up_and_nothing_waits_before(
    course: list[Any], enters: bool
) -> None:
    history, stopped, number = History(), [], 0
    for come, hours, ends, publishes in course:
        for job in come:
            number += 1
            named = job._replace(name=f"j{number}")
            history.waiting[named.key] = named
            history.submit(named, "Inqueue" if enters else "Pending")
        for at in sorted(ends):
            if at < len(history.spans) and len(history.spans[at][1]) == 1:
                history.end(at)
        if publishes:
            history.publish()
        plan = history.decide()
        if not enters:  # what was let in is placed in the cycle that follows
            for each in plan.podgroups:
                if each.phase == "Inqueue":
                    history.submit(history.waiting[each.key], "Inqueue")
            plan = history.decide()
        assert not plan.evictions
        started = {bind.pod for gang in plan.binds for bind in gang.binds}
        for key, job in list(history.waiting.items()):
            assert (key in started) != history.is_used_up(job), (job, history.now)
            if key in started:
                history.spans.append((history.waiting.pop(key), [history.now]))
                history.submit(job, "Running", "n")
            else:
                stopped.append(key)
        history.now += hours * HOUR
    count_hits(stopped)
