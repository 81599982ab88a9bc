"""A cluster that lives: facts and cycles in any order, and what holds at every moment.

The machine plays the API server and the binder: groups and pods come and go, what was decided
happens, fails or is late, limits and nodes change in between.
"""

from typing import Any, ClassVar

import numpy as np
from hypothesis import settings, target
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from typing_extensions import override

from pumice.testing import Cluster
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.rollups import allocated_of
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.reservations import sharing as measure
from shared.api import kinds
from shared.contracts.messages import Result
from shared.model.status import TaskStatus
from tests.property.test_engine_laws import fingerprint, job_print, recounted

CONF = """
actions: "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: overcommit}
  - {name: resourcequota}
  - {name: drf}
  - {name: predicates}
  - {name: capacity}
  - {name: nodeorder}
"""
QUIET_AFTER = 8
"""Cycles after which a cluster that nobody touches has come to rest."""

MOST_JOBS = 5

queue_names = st.sampled_from(["a", "b"])
node_names = st.sampled_from(["n0", "n1", "n2"])
sizes = st.integers(2, 4)
groups = st.fixed_dictionaries(
    {
        "queue": queue_names,
        "tasks": st.integers(1, 3),
        "lacking": st.integers(0, 2),
        "reserves": st.sampled_from([False, False, True]),
        "cpu": st.sampled_from(["1", "2", ""]),
        "importance": st.sampled_from(["high", "low"]),
    }
)


class LivingCluster(RuleBasedStateMachine):
    """The facts, and what is on its way to become one."""

    lives: ClassVar[list[int]] = []
    """How many pods were evicted in each life."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Cluster(CONF, queue=False)
        self.limits: dict[str, int] = {}
        self.hard: dict[str, int] = {}
        self.submitted = 0
        self.coming: list[tuple[str, Any]] = []
        """Intents of the last cycle: (intent, bind or eviction)."""
        self.evicted = 0

    @initialize(cpu=sizes, limits=st.tuples(st.integers(4, 9), st.integers(4, 9)), first=groups)
    def begin(self, cpu: int, limits: tuple[int, int], first: dict[str, Any]) -> None:
        for name, value in (("low", 1), ("high", 100)):
            meta = {"name": name, "uid": name}
            self.world.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": value})
        for name, limit in zip("ab", limits, strict=True):
            self._limit(name, limit)
        for name in ("n0", "n1"):
            self.world.node(name, cpu=str(cpu), pods="8")
        for name, queue in (("old-a", "a"), ("old-b", "b")):  # somebody to take from
            self._submit(name, queue=queue, tasks=4, least=1, cpu="1", importance="low")
        self.live_on()
        self._come(**{**first, "importance": "high"})  # and a job that takes
        self.live_on()

    # --- facts ---------------------------------------------------------------------------------

    @rule(what=st.sampled_from(["limit", "node", "loss", "quota"]), data=st.data())
    def meddle(self, what: str, data: st.DataObject) -> None:
        """Change what there is, in one rule: it should happen less often than work comes in."""
        if what == "limit":
            self._limit(data.draw(queue_names), data.draw(st.integers(1, 9)))
        elif what == "node":
            self.world.node(data.draw(node_names), cpu=str(data.draw(sizes)), pods="8")
        elif what == "loss":
            self.world.delete(kinds.NODE, data.draw(node_names))
        else:
            self._quota(data.draw(st.integers(0, 8)))

    def _limit(self, name: str, cpu: int) -> None:
        self.limits[name] = cpu * 1000
        self.world.queue(name, capability={"cpu": str(cpu)}, deserved={"cpu": str(cpu // 2)})

    def _quota(self, cpu: int) -> None:
        self.hard = {"cpu": cpu * 1000}
        status = {"hard": {"cpu": str(cpu)}, "used": {"cpu": "0"}}
        meta = {"name": "quota", "namespace": "ns", "uid": "quota"}
        self.world.put(kinds.RESOURCEQUOTA, {"metadata": meta, "status": status})

    @rule(groups=st.lists(groups, min_size=1, max_size=3), days=st.integers(0, 2))
    def come(self, groups: list[dict[str, Any]], days: int) -> None:
        """Let work arrive, and days pass."""
        for group in groups:
            self._come(**group)
        for _ in range(days):
            self.live_on()

    def _come(self, *, tasks: int, lacking: int, **more: Any) -> None:
        if len(self._groups()) < MOST_JOBS:
            self.submitted += 1
            self._submit(f"j{self.submitted}", tasks=tasks, least=max(0, tasks - lacking), **more)

    def _groups(self) -> list[str]:
        return sorted(job.name for job in self.world.cluster_state.jobs.all() if job.has_group)

    def _submit(
        self,
        name: str,
        *,
        queue: str,
        tasks: int,
        least: int,
        cpu: str,
        importance: str,
        reserves: bool = False,
    ) -> None:
        self.world.group(
            name,
            queue=queue,
            min_member=least,
            phase="Pending",
            priorityClassName=importance,
            minResources={"cpu": cpu} if reserves and cpu else {},
        )
        for number in range(tasks):
            self.world.pod(f"{name}-{number}", name, cpu=cpu)

    @precondition(lambda self: self._groups())
    @rule(choice=st.integers(0, MOST_JOBS))
    def withdraw(self, choice: int) -> None:
        names = self._groups()
        name = names[choice % len(names)]
        for task in list(self.world.job(name).tasks.values()):
            self.world.delete(kinds.POD, task.key, task.uid)
        self.world.delete(kinds.PODGROUP, f"ns/{name}")

    @rule(choice=st.integers(0, 99))
    def finish(self, choice: int) -> None:
        running = self._tasks(TaskStatus.RUNNING)
        if running:
            self._say(running[choice % len(running)], phase="Succeeded")

    # --- decisions -----------------------------------------------------------------------------

    @rule(seed=st.integers(0, 3))
    def cycle(self, seed: int) -> None:
        world = self.world
        before = fingerprint(world.cluster_state)
        waiting = {job.key for job in world.cluster_state.jobs.all() if job.is_pending}
        plan = world.decide(seed=seed)
        world.cycle -= 1
        assert world.decide(seed=seed) == plan
        assert fingerprint(world.cluster_state) == before
        world.publish(plan)
        self._judge(plan, waiting)
        self.coming = [(f"{plan.cycle}-{n}", b) for n, g in enumerate(plan.binds) for b in g.binds]
        self.coming += [(f"{plan.cycle}-e{n}", e) for n, e in enumerate(plan.evictions)]

    @rule()
    def live_on(self) -> None:
        """Let the days pass: what is decided happens."""
        for _ in range(3):
            self.cycle(seed=0)
            self.happens()

    @precondition(lambda self: self.coming)
    @rule()
    def happens(self) -> None:
        for _, what in self.coming:
            task = self.world.cluster_state.task(what.uid)
            if task is None:
                continue
            if hasattr(what, "job"):  # an eviction
                self.world.delete(kinds.POD, what.pod, what.uid)
            else:
                self._say(task, node=what.node)
        self.coming = []

    @precondition(lambda self: self.coming)
    @rule()
    def fails(self) -> None:
        for intent, what in self.coming:
            self.world.cluster_state.outcome(intent, [(what.uid, Result.FAILED)])
        self.coming = []

    def _say(self, task: Task, **more: Any) -> None:
        cpu = int(task.task_class.request[0])
        group = task.job_key.partition("/")[2]
        asked = f"{cpu}m" if cpu else ""
        self.world.pod(task.name, group, cpu=asked, **{"node": task.node, **more})

    def _tasks(self, status: TaskStatus) -> list[Task]:
        found = (task for task in self.world.cluster_state.tasks() if task.status is status)
        return sorted(found, key=lambda task: task.uid)

    # --- laws ----------------------------------------------------------------------------------

    def _judge(self, plan: Plan, waiting: set[str]) -> None:
        """Hold a plan to what no decision may do."""
        self.evicted += len(plan.evictions)
        jobs = self.world.cluster_state.jobs
        taken_from = {eviction.job for eviction in plan.evictions}
        for gang in plan.binds:
            job = jobs.get(gang.job)
            # preempt may take from it in the same cycle where a later tier decides (SS06)
            assert job.is_ready or gang.job in taken_from, gang.job
            if any(not self._task(bind.uid).task_class.best_effort for bind in gang.binds):
                held = sum(int(other.allocated[0]) for other in self._of_queue(job.queue))
                assert held <= self.limits[job.queue], job.queue
            for bind in gang.binds:
                self._judge_node(bind.node, self._task(bind.uid))
        entered = [g.key for g in plan.podgroups if g.phase == "Inqueue" and g.key in waiting]
        if self.hard and entered:
            asked = sum(jobs.get(key).min_listed.get("cpu", 0) for key in entered)
            assert asked <= self.hard["cpu"] or asked == 0
        preemptors = {eviction.preemptor_uid for eviction in plan.evictions}
        assert all(self._task(uid).status is TaskStatus.PENDING for uid in preemptors)
        assert preemptors <= {nomination.uid for nomination in plan.nominations}

    def _judge_node(self, name: str, task: Task) -> None:
        nodes = self.world.cluster_state.nodes
        column = nodes.column(name)
        if not task.task_class.best_effort:
            over = nodes.ledger.used[:, column] > nodes.ledger.allocatable[:, column]
            assert not over.any(), name
        assert nodes.ledger.pods(column) <= nodes.ledger.allocatable[2, column]

    def _task(self, uid: str) -> Task:
        task = self.world.cluster_state.task(uid)
        assert task is not None, uid
        return task

    def _of_queue(self, name: str) -> list[Job]:
        return [job for job in self.world.cluster_state.jobs.all() if job.queue == name]

    @invariant()
    def sums_kept_up_equal_sums_from_scratch(self) -> None:
        cluster_state = self.world.cluster_state
        assert cluster_state.audit() == []
        for of in (measure, allocated_of):
            scratch: dict[str, np.ndarray] = {}
            for job in cluster_state.jobs.all():
                if cluster_state.jobs.takes_part(job):
                    scratch[job.queue] = scratch.get(job.queue, 0) + of(job)
            kept = cluster_state.jobs.rollup(of).sums()
            assert {q: s.tolist() for q, s in kept.items()} == {
                q: s.tolist() for q, s in scratch.items()
            }
        for job in cluster_state.jobs.all():
            assert job_print(job) == job_print(recounted(job))

    def teardown(self) -> None:
        """Leave it alone: it comes to rest."""
        target(float(self.evicted), label="evictions")
        self.lives.append(self.evicted)
        for _ in range(QUIET_AFTER):
            plan = self.world.step()
        assert (plan.binds, plan.evictions) == ((), ())


LivingCluster.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


class TestLivingCluster(LivingCluster.TestCase):
    """Runs the machine."""

    @override
    def runTest(self) -> None:
        LivingCluster.lives.clear()
        super().runTest()
        assert sum(map(bool, LivingCluster.lives)) >= 10, LivingCluster.lives
