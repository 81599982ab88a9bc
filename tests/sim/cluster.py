"""The cluster of a simulation as its user and its judge see it: plain JSON, at once."""

import json
import re
from collections.abc import Callable
from typing import Any

from pumice.embedded.apiserver.replies import ApiRequest
from shared.kube import wire
from tests.sim.story import Story
from tests.support.api import path
from tests.support.api_server import ApiServer
from tests.support.invariants import FINISHED, Invariants, Violation, key_of

_DELETES_POD = re.compile(r"DELETE /api/v1/namespaces/([^/]+)/pods/([^/]+)")

HOSTILE = "hostile"
"""Namespace of objects that are no promise's affair."""
HOSTILE_NODES = "h0x"


class Refused(Exception):  # noqa: N818 - the fact
    """An answer that is not 2xx."""


class Cluster:
    """The API server as a user with kubectl sees it."""

    def __init__(self, server: ApiServer, story: Story) -> None:
        self._server = server
        self._story = story

    def request(self, method: str, url: str, body: object = None, **query: str) -> Any:
        """Send a request; return the decoded answer. Raises Refused."""
        answer = self._server.handle(
            ApiRequest(
                method=method,
                path=url,
                query=query,
                headers={"content-type": "application/json"},
                body=b"" if body is None else json.dumps(body).encode(),
            )
        )
        if answer.status >= 300:
            raise Refused(f"{method} {url}: {answer.status} {answer.body[:300]!r}")
        if method != "GET":
            self._story.tell("user", f"{method} {url}", status=answer.status)
        return json.loads(answer.body)

    def create(self, plural: str, body: dict, namespace: str = "") -> dict:
        return self.request("POST", path(plural, namespace), body)

    def items(self, plural: str, namespace: str = "") -> list[dict]:
        return self.request("GET", path(plural, namespace))["items"]

    def has(self, plural: str, uid: str) -> bool:
        """Tell whether there is an object of that uid."""
        return any(found["metadata"]["uid"] == uid for found in self.items(plural))

    def delete(self, plural: str, namespace: str, name: str) -> dict:
        return self.request("DELETE", path(plural, namespace, name))

    def watch(self, plural: str, each: Callable[[str, dict], None]) -> None:
        """Call `each(type, object)` with all objects of a kind and what becomes of them."""
        watch = self._server.handle(
            ApiRequest(
                method="GET",
                path=path(plural),
                query={"watch": "true"},
            )
        )

        def changed() -> None:
            for block in watch.take():
                for line in block.splitlines():
                    event = json.loads(line)
                    if event["type"] != "BOOKMARK":
                        each(event["type"], event["object"])

        watch.on_change(changed)
        changed()


class Judge(Invariants):
    """Sees every event of pods, nodes and jobs in the moment in which it happens."""

    def __init__(self, cluster: Cluster, story: Story) -> None:
        super().__init__()
        self._story = story
        self.jobs: dict[str, dict] = {}
        self.on_request: list[Callable[[str, wire.Request], None]] = []
        cluster.watch("nodes", self._node)
        cluster.watch("pods", self._pod)
        cluster.watch("jobs", self._job)

    def _node(self, _: str, node: dict) -> None:
        if not node["metadata"]["name"].startswith(HOSTILE_NODES):
            self.node(node)

    def _pod(self, op: str, pod: dict) -> None:
        if pod["metadata"]["namespace"] == HOSTILE:
            return  # its amounts are whatever a server takes for amounts
        known = len(self.violations)
        if op == "DELETED":
            self.gone(pod)
        else:
            self.pod(pod)
        metadata = pod["metadata"]
        self._story.tell(
            "cluster",
            f"pod {op.lower()}",
            key=key_of(pod),
            uid=metadata["uid"],
            rv=metadata["resourceVersion"],
            node=pod["spec"].get("nodeName", ""),
            phase=pod.get("status", {}).get("phase", ""),
            leaving="deletionTimestamp" in metadata,
        )
        for violation in self.violations[known:]:
            self._story.tell("judge", "promise broken", key=violation.key, text=violation.text)

    def _job(self, op: str, job: dict) -> None:
        key = key_of(job)
        if job["metadata"]["namespace"] == HOSTILE:
            return
        if op == "DELETED":
            self.jobs.pop(key, None)
            return
        before = self.phase(key)
        self.job(self.jobs.get(key), job)
        self.jobs[key] = job
        if self.phase(key) != before:
            self._story.tell("cluster", f"job {self.phase(key) or op.lower()}", key=key)

    def asked(self, who: str, request: wire.Request) -> None:
        """Take note of a request in the moment in which the server takes it."""
        for told in self.on_request:
            told(who, request)

    def finished_pod(self, doing: str) -> str:
        """Return the key of the pod that a request is to delete if the pod has finished."""
        match = _DELETES_POD.fullmatch(doing)
        key = "/".join(match.groups()) if match else ""
        phase = self.pods.get(key, {}).get("status", {}).get("phase")
        return key if phase in FINISHED else ""

    def phase(self, key: str) -> str:
        """Return a job's phase, "" when it has none."""
        job = self.jobs.get(key, {})
        return job.get("status", {}).get("state", {}).get("phase", "")

    def broken(self, key: str, text: str) -> None:
        """Record a violation that another checker has found."""
        self.violations.append(Violation(key, text))
        self._story.tell("judge", "promise broken", key=key, text=text)
