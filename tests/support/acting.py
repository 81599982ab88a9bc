"""A cluster that acts: the scheduler's own state, and what controller and binder make of it.

Tests ask visibility about a `World`, start a `Cluster` with its objects, do what a person would do,
and compare.
"""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from services.scheduler.engine.jobs.records import Job
from services.scheduler.scheduler_state import SchedulerState
from services.visibility.forecast.shapes import pods, pods_of
from services.visibility.queries.gangs import imagined
from services.visibility.queries.survey import DecisionPolicy
from services.visibility.queries.whatif import what_if
from shared.api.core import Pod
from shared.api.visibility import WhatIfStatus
from shared.api.whatifs import WhatIfSpec
from shared.contracts import messages as m
from shared.contracts.messages import Fact, Op
from tests.support.configured import configured
from tests.support.mirrors import Json, World

NOW = 1e9
"""Unix seconds of everything that is asked and done."""


def ask(world: World, conf: str, **spec: Any) -> WhatIfStatus:
    question = msgspec.json.decode(msgspec.json.encode(spec), type=WhatIfSpec)
    policy = DecisionPolicy(config=configured(conf))
    return what_if(world.mirror, policy, question, namespace="ns", now=NOW)


class Cluster:
    """The scheduler's state, and what controller and binder make of what it wants."""

    def __init__(self, world: World, conf: str) -> None:
        self._config = configured(conf)
        self._mirror = world.mirror
        self._objects = copy.deepcopy(world.objects)
        self._scheduler_state = SchedulerState(
            scheduler_names=("volcano",), seed=0, gang_message=500, settle_s=0.0
        )
        for kind, key in self._objects:
            self._say(kind, key)
        self._pods: dict[str, list[Pod]] = {}
        self._cycle = 0
        self.bound: Counter[tuple[str, str]] = Counter()

    def _say(self, kind: str, key: str) -> None:
        document = self._objects[kind, key]
        body = msgspec.Raw(msgspec.json.encode(document))
        uid = document["metadata"]["uid"]
        assert not self._scheduler_state.fold(
            [Fact(kind=kind, key=key, uid=uid, rv="1", body=body)]
        )

    def _put(self, kind: str, view: Any) -> None:
        document = msgspec.to_builtins(view)
        document["metadata"]["uid"] = view.metadata.uid.replace("what-if", "real")
        self._objects[kind, view.metadata.key] = document
        self._say(kind, view.metadata.key)

    def submit(self, drawn: Json) -> None:
        body = msgspec.json.encode({"job": drawn})
        spec = msgspec.json.decode(body, type=WhatIfSpec)
        assert spec.job is not None
        gang = imagined(spec.job, self._mirror, namespace="ns", now=NOW)
        self._put("podgroups", gang.group)
        self._pods[gang.key] = list(gang.pods())

    def drain(self, name: str) -> None:
        """Cordon a node; the pods on it come again and wait."""
        self._objects["nodes", name]["spec"] = {"unschedulable": True}
        self._say("nodes", name)
        for (kind, key), pod in list(self._objects.items()):
            if kind == "pods" and pod["spec"].get("nodeName") == name:
                gone = Fact(kind="pods", key=key, uid=pod["metadata"]["uid"], rv="2", op=Op.DELETE)
                assert not self._scheduler_state.fold([gone])
                pod["metadata"]["uid"] += "-again"
                pod["spec"]["nodeName"] = ""
                pod["status"] = {"phase": "Pending"}
                self._say("pods", key)

    def run(self) -> None:
        for _ in range(12):
            if not self._step():
                return
        raise AssertionError("the cluster does not come to rest")

    def _step(self) -> bool:
        self._cycle += 1
        decision = self._scheduler_state.decide(self._config, now=NOW, cycle=self._cycle, token=1)
        self._scheduler_state.assume_statuses(decision.plan)
        for group in decision.whole.podgroups:
            known = self._objects["podgroups", group.key]
            known["status"] = {"phase": group.phase}
            self._say("podgroups", group.key)
        made = self._make_pods()
        for command in decision.commands:
            self._carry_out(command)
        return bool(made or decision.commands)

    def _make_pods(self) -> bool:
        made = False
        dimensions = self._scheduler_state.cluster_state.dimensions
        for job_ in list(self._scheduler_state.cluster_state.jobs.all()):
            if job_.phase == "Inqueue" and not job_.tasks:
                shape = pods_of(job_, dimensions)
                guessed = pods(job_.key, shape, now=NOW, scheduler_name="volcano")
                for pod in self._pods.pop(job_.key, guessed):
                    self._put("pods", pod)
                    made = True
        return made

    def _carry_out(self, command: m.Command) -> None:
        if isinstance(command, m.BindGang):
            for bind in command.binds:
                pod = self._objects["pods", bind.pod]
                pod["spec"]["nodeName"] = bind.node
                pod["status"] = {"phase": "Running"}
                self._say("pods", bind.pod)
                role = pod["metadata"]["annotations"].get("volcano.sh/task-spec", "")
                if bind.pod.startswith("ns/asked-"):
                    self.bound[role, bind.node] += 1
            return
        for victim in command.victims:
            pod = self._objects.pop(("pods", victim.pod))
            uid = pod["metadata"]["uid"]
            gone = Fact(kind="pods", key=victim.pod, uid=uid, rv="2", op=Op.DELETE)
            assert not self._scheduler_state.fold([gone])

    def objects(self) -> list[tuple[str, Json]]:
        """Return all objects as they are now, with their kinds."""
        return [(kind, document) for (kind, _), document in self._objects.items()]

    # --- what a person does --------------------------------------------------------------------

    def get(self, kind: str, key: str) -> Json:
        """Return an object as it is now."""
        return self._objects[kind, key]

    def put(self, kind: str, document: Json) -> None:
        """Create or replace an object."""
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        self._objects[kind, key] = document
        self._say(kind, key)

    def edit(self, kind: str, key: str, change: Callable[[Json], object]) -> None:
        """Change an object in place."""
        change(self._objects[kind, key])
        self._say(kind, key)

    def end(self, group: str) -> None:
        """Let the pods of a PodGroup end and be deleted, and the group with them."""
        _, _, name = group.partition("/")
        for kind, key in list(self._objects):
            notes = self._objects[kind, key]["metadata"].get("annotations", {})
            is_of = notes.get("scheduling.k8s.io/group-name") == name and kind == "pods"
            if is_of or (kind, key) == ("podgroups", group):
                uid = self._objects.pop((kind, key))["metadata"]["uid"]
                gone = Fact(kind=kind, key=key, uid=uid, rv="2", op=Op.DELETE)
                assert not self._scheduler_state.fold([gone])

    def job(self, key: str) -> Job:
        """Return a PodGroup as the scheduler has it."""
        found = self._scheduler_state.cluster_state.jobs.get(key)
        assert found is not None, key
        return found

    @property
    def without_place(self) -> int:
        """How many pods that a drained node held wait."""
        pods = [document for (kind, _), document in self._objects.items() if kind == "pods"]
        again = [pod for pod in pods if pod["metadata"]["uid"].endswith("-again")]
        return sum(not pod["spec"]["nodeName"] for pod in again)

    @property
    def asked_runs(self) -> bool:
        found = [
            j for j in self._scheduler_state.cluster_state.jobs.all() if j.name.startswith("asked-")
        ]
        return all(each.is_ready for each in found) and bool(found)
