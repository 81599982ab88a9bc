"""The judge of `make attack`: the API server's watches and its audit log, nothing of ours.

Beside the promises of `tests.support.invariants`, which it checks at every event, it takes the
times of gangs, holds it against us when a pod is bound to a node that others have filled for long,
and sees in the end whether the API server accepted one binding per pod.
"""

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.support.api import Api
from tests.support.invariants import Watcher, key_of

ENDED = ("Completed", "Failed", "Terminated", "Aborted")
NOTICED_S = 3.0
"""After this long the scheduler knows of a pod that named its node itself."""
JOB = "volcano.sh/job-name"


class Gang(NamedTuple):
    """When (monotonic seconds) all pods of a gang had nodes, and when its job had its end."""

    bound_s: float
    ended_s: float


class AttackJudge(Watcher):
    """Follows pods, nodes and jobs; `violations` lists what was broken."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.noticed_s = NOTICED_S
        self.sizes: dict[str, int] = {}
        """Pods per gang (`namespace/name`) whose times are wanted."""
        self.bound_s: dict[str, float] = {}
        self.ended_s: dict[str, float] = {}
        self._placed: dict[str, set[str]] = {}
        self._jobs: dict[str, dict] = {}
        self._filled_s: dict[str, float] = {}
        self._singles: set[str] = set()
        """Expected pods that belong to no job."""
        self._single_ended: set[str] = set()
        self._in_use: dict[str, set[str]] = {}
        """Nodes per NodeShard that its scheduler uses."""

    def expect(self, key: str, size: int) -> None:
        """Take the times of a gang, or of a single pod, from now on."""
        self.sizes[key] = size

    def pod(self, pod: dict) -> None:
        """Take a pod, new or changed."""
        super().pod(pod)
        metadata = pod["metadata"]
        notes = metadata.get("annotations") or {}
        if metadata["namespace"] == self.strangers:
            if node := pod["spec"].get("nodeName"):
                self._filled_s.setdefault(node, time.monotonic())
            return
        job = f"{metadata['namespace']}/{notes.get(JOB) or metadata['name']}"
        if job not in self.sizes:
            return
        if JOB not in notes:
            self._singles.add(job)
        if job in self._singles and pod.get("status", {}).get("phase") == "Succeeded":
            self._single_ended.add(job)
            self.ended_s.setdefault(job, time.monotonic())
        if node := pod["spec"].get("nodeName"):
            self._note_placed(job, metadata["uid"], node)

    def _note_placed(self, job: str, uid: str, node: str) -> None:
        placed = self._placed.setdefault(job, set())
        filled_s = self._filled_s.get(node)
        if uid not in placed and filled_s and time.monotonic() - filled_s > self.noticed_s:
            self._broken(job, f"a pod of {job} was bound to {node}, which a stranger's pod fills")
        placed.add(uid)
        if len(placed) >= self.sizes[job]:
            self.bound_s.setdefault(job, time.monotonic())

    def _changed(self, job: dict) -> None:
        """Take a job, new or changed."""
        key = key_of(job)
        before = self._jobs.get(key)
        self._jobs[key] = job
        if self.phase(key) in ENDED:
            self.ended_s.setdefault(key, time.monotonic())
        same = before is not None and before["metadata"]["uid"] == job["metadata"]["uid"]
        self.job(before if same else None, job)

    def phase(self, key: str) -> str:
        """Return the phase in which a job was seen last; a single pod is complete when it ends."""
        if key in self._single_ended:
            return "Completed"
        job = self._jobs.get(key, {})
        return job.get("status", {}).get("state", {}).get("phase", "")

    def gone(self, pod: dict) -> None:
        """Take the end of a pod."""
        super().gone(pod)
        if pod["metadata"]["namespace"] == self.strangers:
            self._filled_s.pop(pod["spec"].get("nodeName", ""), None)

    def forget(self, keys: set[str]) -> None:
        """Drop what is known of gangs that are gone."""
        for table in (self.sizes, self.bound_s, self.ended_s, self._placed, self._jobs):
            for key in keys & table.keys():
                del table[key]
        self._singles -= keys
        self._single_ended -= keys

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run(), name="pods")
            tasks.create_task(self.kept(self._follow_jobs), name="jobs")
            tasks.create_task(self.kept(self._follow_shards), name="shards")

    async def _follow_jobs(self) -> None:
        found = await self._api.get("jobs")
        for job in found["items"]:
            self._changed(job)
        async for event in self._api.watch("jobs", rv=found["metadata"]["resourceVersion"]):
            if event["type"] in ("ADDED", "MODIFIED"):
                self._changed(event["object"])
            if event["type"] == "ERROR":
                return

    def shard(self, shard: dict) -> None:
        """Take a NodeShard, new or changed: no node is in use by two schedulers."""
        name = shard["metadata"]["name"]
        self._in_use[name] = set(shard.get("status", {}).get("nodesInUse") or ())
        for other, nodes in self._in_use.items():
            if other != name and (both := nodes & self._in_use[name]):
                self._broken(name, f"{sorted(both)} are in use by {name} and by {other}")

    def is_single(self, key: str) -> bool:
        """Tell whether what is expected is a pod of no job."""
        return key in self._singles

    def in_use(self, name: str) -> set[str]:
        """Return the nodes that a NodeShard's scheduler uses."""
        return self._in_use.get(name, set())

    async def _follow_shards(self) -> None:
        found = await self._api.get("nodeshards")
        for shard in found["items"]:
            self.shard(shard)
        version = found["metadata"]["resourceVersion"]
        async for event in self._api.watch("nodeshards", rv=version):
            if event["type"] in ("ADDED", "MODIFIED"):
                self.shard(event["object"])
            if event["type"] == "ERROR":
                return


def double_bindings(audit_log: Path) -> list[str]:
    """Return what the audit log shows of pods whose binding was accepted twice.

    A pod's name comes again after the pod was deleted; so a second accepted binding is a fault
    only if no deletion of that name was accepted in between.
    """
    bound: Counter[str] = Counter()
    twice = []
    with audit_log.open(encoding="utf-8") as log:
        for line in log:
            entry = json.loads(line)
            ref = entry.get("objectRef") or {}
            if ref.get("resource") != "pods" or entry["responseStatus"].get("code", 0) >= 300:
                continue
            key = f"{ref.get('namespace')}/{ref.get('name')}"
            if entry["verb"] == "create" and ref.get("subresource") == "binding":
                bound[key] += 1
                if bound[key] > 1:
                    twice.append(f"{key} was bound {bound[key]} times ({entry['userAgent']})")
            elif entry["verb"] in ("delete", "deletecollection"):
                bound.pop(key, None)
    return twice
