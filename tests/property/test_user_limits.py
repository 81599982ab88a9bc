"""Laws of plugin `limits`: no limit is ever exceeded, and nothing waits that would exceed none.

What counts against a limit is counted here anew, pod by pod, from the objects alone.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of, evictions_of
from services.scheduler.engine.jobs.records import Job
from shared.api import keys, kinds
from shared.model.status import HOLDS_RESOURCES
from tests.support.laws import count_hits, needs_hits

PARENTS = {"a": "root", "b": "team", "c": "team", "team": "root", "root": ""}
LIMITS: list[dict[str, Any]] = [
    {"queue": "team", "resources": {"cpu": 9}},
    {"queue": "a", "users": ["ann"], "resources": {"cpu": 4}, "pods": 3},
    {"queue": "a", "users": ["*"], "pods": 4, "jobs": 2},
    {"queue": "b", "users": ["*"], "resources": {"cpu": 5}},
    {"users": ["*"], "jobs": 3, "pods": 7},
]
TEXT = """
actions: "{actions}"
tiers:
- plugins:
  - {{name: priority}}
  - {{name: gang, enablePreemptable: false}}
  {limits}
- plugins:
  - {{name: predicates}}
  {sharing}
"""


def conf(limits: list[dict[str, Any]] | None, *, actions: str, sharing: str = "") -> str:
    option = f"- {{name: limits, arguments: {{limits: {limits}}}}}" if limits else ""
    return TEXT.format(actions=actions, limits=option.replace("'", '"'), sharing=sharing)


class Counted(NamedTuple):
    """The pods and CPUs that count against a limit of a user, and the jobs of these pods."""

    cpus: int
    pods: int
    jobs: int


def user_of(job: Job) -> str:
    return job.annotations.get(keys.USER, "")


def limits_of(job: Job) -> Iterator[tuple[int, str]]:
    """Yield number and user of each limit that a job counts against."""
    queue = job.queue
    while queue:
        named = False
        for number, limit in enumerate(LIMITS):
            users = limit.get("users", [])
            if limit.get("queue", "root") != queue:
                continue
            if not users:
                yield number, ""
            elif not named and (user_of(job) in users or "*" in users):
                named = True
                yield number, user_of(job)
        queue = PARENTS[queue]


def counted(world: Cluster) -> dict[tuple[int, str], Counted]:
    sums: dict[tuple[int, str], Counter[str]] = {}
    for job in world.cluster_state.jobs.all():
        held = [task for task in job.tasks.values() if HOLDS_RESOURCES[task.status]]
        for key in limits_of(job):
            found = sums.setdefault(key, Counter())
            found["cpus"] += sum(int(task.task_class.request[0]) // 1000 for task in held)
            found["pods"] += len(held)
            found["jobs"] += bool(held)
    return {key: Counted(each["cpus"], each["pods"], each["jobs"]) for key, each in sums.items()}


def ceiling(number: int) -> Counted:
    limit = LIMITS[number]
    most = 10**6
    cpus = limit.get("resources", {}).get("cpu", most)
    return Counted(cpus, limit.get("pods", most), limit.get("jobs", most))


@st.composite
def worlds(draw: st.DrawFn, text: str, *, alike: bool = False) -> Cluster:
    world = Cluster(text, queue=False)
    world.put(kinds.PRIORITYCLASS, {"metadata": {"name": "high"}, "value": 100})
    for number in range(3):
        world.node(f"n{number}", cpu="8")
    world.queue("root").queue("team", parent="root")
    for name in ("a", "b", "c"):
        world.queue(name, parent=PARENTS[name], capability={"cpu": "24"})
    room = [8, 8, 8]
    for number in range(draw(st.integers(2, 9))):
        name, node = f"g{number}", number % 3
        sizes = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 4)))]
        sizes = [max(1, sizes[0])] * len(sizes) if alike else sizes
        runs = draw(st.integers(0, 3)) == 0 and room[node] >= sum(sizes)
        room[node] -= sum(sizes) if runs else 0
        user = draw(st.sampled_from(["ann", "bob", ""]))
        least = len(sizes) if alike else draw(st.integers(1, len(sizes)))
        meta = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-ns/{name}",
            "creationTimestamp": f"2026-01-01T00:00:0{number}Z",
            "annotations": {keys.USER: user} if user else {},
        }
        spec = {
            "queue": draw(st.sampled_from(["a", "b", "c"])),
            "minMember": least,
            "minResources": {"cpu": str(sum(sorted(sizes)[:least]))},
            "priorityClassName": draw(st.sampled_from(["", "high"])),
        }
        phase = "Running" if runs else draw(st.sampled_from(["Pending", "Inqueue"]))
        world.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
        for task, size in enumerate(sizes):
            where = f"n{node}" if runs else ""
            world.pod(f"{name}-{task}", name, cpu=str(size) if size else "", node=where)
    return world


RECLAIMS = "- {name: proportion}"
EVERYTHING = "enqueue, allocate, preempt, reclaim, backfill"


@needs_hits(at_least=20)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_limit_is_exceeded_by_what_a_cycle_places(data: st.DataObject) -> None:
    world = data.draw(worlds(conf(LIMITS, actions=EVERYTHING, sharing=RECLAIMS)))
    at_a_limit = []
    for _ in range(4):
        before = counted(world)
        world.step()
        for (number, user), now in counted(world).items():
            was, most = before.get((number, user), Counted(0, 0, 0)), ceiling(number)
            for held, then, limit in zip(now, was, most, strict=True):
                assert held <= max(limit, then), (LIMITS[number], user, was, now)
                if held == limit and held > then:
                    at_a_limit.append(number)
        for task in list(world.cluster_state.tasks()):
            if task.node and data.draw(st.integers(0, 5)) == 0:
                world.delete(kinds.POD, task.key, task.uid)
    count_hits(at_a_limit)


@needs_hits(at_least=20)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_job_that_waits_for_a_limit_would_exceed_one(data: st.DataObject) -> None:
    """Of gangs of equal pods: what is held only grows in a cycle that evicts nothing."""
    world = data.draw(worlds(conf(LIMITS, actions="allocate, backfill"), alike=True))
    plan = world.step()
    held = counted(world)
    waits = [e for e in plan.explanations if e.gate in {"limits", "quota"}]
    for why in waits:
        job = world.job(why.job.partition("/")[2])
        pods = [task for task in job.tasks.values() if not HOLDS_RESOURCES[task.status]]
        need = max(1, job.min_available - job.ready_count)
        cpus = need * int(pods[0].task_class.request[0]) // 1000
        assert any(
            now.cpus + cpus > most.cpus
            or now.pods + need > most.pods
            or (now.jobs >= most.jobs and len(pods) == len(job.tasks))
            for key in limits_of(job)
            for now, most in [(held.get(key, Counted(0, 0, 0)), ceiling(key[0]))]
        ), (why, held)
    count_hits(waits)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=st.integers(0, 2**31))
def test_limits_that_nothing_reaches_change_no_decision(drawn: int) -> None:
    far = [{"users": ["*"], "pods": 999, "resources": {"cpu": 999}}, {"queue": "team", "jobs": 999}]
    plans = []
    for limits in (None, far):
        text = conf(limits, actions=EVERYTHING, sharing=RECLAIMS)
        world = _same(text, drawn)
        steps = [world.step() for _ in range(2)]
        plans.append([(binds_of(plan), evictions_of(plan)) for plan in steps])
    assert plans[0] == plans[1]


def _same(text: str, seed: int) -> Cluster:
    """Return the same world for one number, whatever the configuration."""
    rng = random.Random(seed)
    world = Cluster(text, queue=False)
    for number in range(3):
        world.node(f"n{number}", cpu="8")
    world.queue("root").queue("team", parent="root")
    for name in ("a", "b", "c"):
        world.queue(name, parent=PARENTS[name])
    for number in range(rng.randint(2, 9)):
        tasks, cpu = rng.randint(1, 4), str(rng.randint(1, 4))
        queue = rng.choice(["a", "b", "c"])
        world.gang(f"g{number}", tasks=tasks, cpu=cpu, queue=queue, phase="Inqueue")
    return world
