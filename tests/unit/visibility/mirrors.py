"""The mirror of visibility filled with objects, and a cluster that acts on the same objects.

Tests ask visibility about a `World`, start a `Cluster` with its objects, do what a person would do,
and compare. The cluster is the scheduler's own state, and what controller and binder make of it.
"""

import copy
from collections import Counter
from typing import Any

import msgspec

from services.scheduler.adapters.expressions import waiting_evaluator
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.jobs.records import Job
from services.scheduler.scheduler_state import SchedulerState
from services.visibility.forecast.shapes import pods, pods_of
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.gangs import imagined
from services.visibility.queries.survey import DecisionPolicy
from services.visibility.queries.whatif import what_if
from shared.api.core import Pod
from shared.api.visibility import WhatIfStatus
from shared.api.whatifs import WhatIfSpec
from shared.contracts import messages as m
from tests.support.laws import configured
from tests.support.world import Json, Objects, bare_task


class World(Objects):
    """Objects and a mirror of them."""

    def __init__(self) -> None:
        self.mirror = ClusterMirror(evaluator=waiting_evaluator())
        super().__init__(self.mirror.fold)


def running(
    world: World,
    name: str,
    *,
    cpu: str,
    node: str,
    priority: str = "",
    preemptable: bool = False,
    owner: str = "",
    queue: str = "default",
) -> World:
    """Add a group with one pod that runs."""
    spec: Json = {"minResources": {"cpu": cpu}}
    if priority:
        spec["priorityClassName"] = priority
    world.group(name, phase="Running", owner=owner, queue=queue, **spec)
    annotations = {"volcano.sh/preemptable": "true"} if preemptable else {}
    return world.pod(f"{name}-0", name, cpu=cpu, node=node, annotations=annotations)


def job_of_tasks(
    name: str,
    *,
    queue: str = "",
    priority: str = "",
    scheduler: str = "",
    also: dict[str, str] | None = None,
    **tasks: tuple[int, str],
) -> Json:
    """Return a Job; tasks are name → (pods, CPU of each)."""
    named = {"queue": queue, "priorityClassName": priority, "schedulerName": scheduler}
    made = [
        bare_task(task, pods, {"cpu": cpu, **(also or {})}, limits=also)
        for task, (pods, cpu) in tasks.items()
    ]
    spec = {field: value for field, value in named.items() if value}
    return {"metadata": {"name": name}, "spec": {"tasks": made, **spec}}


NOW = 1e9
"""Unix seconds of everything that is asked and done."""


def ask(world: World, conf: str, **spec: Any) -> WhatIfStatus:
    question = msgspec.json.decode(msgspec.json.encode(spec), type=WhatIfSpec)
    policy = DecisionPolicy(config=configured(conf))
    return what_if(world.mirror, policy, question, namespace="ns", now=NOW)


class Cluster(Objects):
    """The scheduler's state, and what controller and binder make of what it wants."""

    def __init__(self, world: World, conf: str) -> None:
        self.scheduler = SchedulerState(DecisionSettings(), gang_message=500, settle_s=0.0)
        super().__init__(self.scheduler.fold)
        self._config = configured(conf)
        self._mirror = world.mirror
        for (kind, _), document in world.objects.items():
            self.put(kind, copy.deepcopy(document))
        self._pods: dict[str, list[Pod]] = {}
        self._cycle = 0
        self.bound: Counter[tuple[str, str]] = Counter()

    def _make(self, kind: str, view: Any) -> None:
        document = msgspec.to_builtins(view)
        document["metadata"]["uid"] = view.metadata.uid.replace("what-if", "real")
        self.put(kind, document)

    def submit(self, drawn: Json) -> None:
        body = msgspec.json.encode({"job": drawn})
        spec = msgspec.json.decode(body, type=WhatIfSpec)
        assert spec.job is not None
        gang = imagined(spec.job, self._mirror, namespace="ns", now=NOW)
        self._make("podgroups", gang.group)
        self._pods[gang.key] = list(gang.pods())

    def drain(self, name: str) -> None:
        """Cordon a node; the pods on it come again and wait."""
        self.edit("nodes", name, lambda node: node.update(spec={"unschedulable": True}))
        for (kind, key), pod in list(self.objects.items()):
            if kind == "pods" and pod["spec"].get("nodeName") == name:
                self.delete(kind, key)
                pod["metadata"]["uid"] += "-again"
                pod["spec"]["nodeName"] = ""
                self.put(kind, {**pod, "status": {"phase": "Pending"}})

    def run(self) -> None:
        for _ in range(12):
            if not self._step():
                return
        raise AssertionError("the cluster does not come to rest")

    def _step(self) -> bool:
        self._cycle += 1
        decision = self.scheduler.decide(self._config, now=NOW, cycle=self._cycle, token=1)
        self.scheduler.assume_statuses(decision.plan)
        for group in decision.full_plan.podgroups:
            known = self.objects["podgroups", group.key]
            self.put("podgroups", {**known, "status": {"phase": group.phase}})
        made = self._make_pods()
        for command in decision.commands:
            self._carry_out(command)
        return bool(made or decision.commands)

    def _make_pods(self) -> bool:
        made = False
        dimensions = self.scheduler.cluster_state.dimensions
        for job_ in list(self.scheduler.cluster_state.jobs.all()):
            if job_.phase == "Inqueue" and not job_.tasks:
                shape = pods_of(job_, dimensions)
                guessed = pods(job_.key, shape, now=NOW, scheduler_name="volcano")
                for pod in self._pods.pop(job_.key, guessed):
                    self._make("pods", pod)
                    made = True
        return made

    def _carry_out(self, command: m.Command) -> None:
        if isinstance(command, m.BindGang):
            for bind in command.binds:
                pod = self.objects["pods", bind.pod]
                spec = {**pod["spec"], "nodeName": bind.node}
                self.put("pods", {**pod, "spec": spec, "status": {"phase": "Running"}})
                role = pod["metadata"]["annotations"].get("volcano.sh/task-spec", "")
                if bind.pod.startswith("ns/asked-"):
                    self.bound[role, bind.node] += 1
            return
        for victim in command.victims:
            self.delete("pods", victim.pod)

    def end(self, group: str) -> None:
        """Let the pods of a PodGroup end and be deleted, and the group with them."""
        _, _, name = group.partition("/")
        for (kind, key), document in list(self.objects.items()):
            notes = document["metadata"].get("annotations", {})
            is_of = notes.get("scheduling.k8s.io/group-name") == name and kind == "pods"
            if is_of or (kind, key) == ("podgroups", group):
                self.delete(kind, key)

    def job(self, key: str) -> Job:
        """Return a PodGroup as the scheduler has it."""
        found = self.scheduler.cluster_state.jobs.get(key)
        assert found is not None, key
        return found

    @property
    def without_place(self) -> int:
        """How many pods that a drained node held wait."""
        pods = [document for (kind, _), document in self.objects.items() if kind == "pods"]
        again = [pod for pod in pods if pod["metadata"]["uid"].endswith("-again")]
        return sum(not pod["spec"]["nodeName"] for pod in again)

    @property
    def asked_runs(self) -> bool:
        found = [j for j in self.scheduler.cluster_state.jobs.all() if j.name.startswith("asked-")]
        return all(each.is_ready for each in found) and bool(found)
