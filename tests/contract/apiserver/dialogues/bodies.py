"""Paths and bodies that the dialogues are made of."""

from typing import Any

from tests.contract.apiserver.dialogue import Ask
from tests.support import world

CORE = "/api/v1"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
OTHER = "11111111-1111-1111-1111-111111111111"
PODS = f"{CORE}/namespaces/{{ns}}/pods"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{ns}/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/{ns}/commands"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
MAPS = f"{CORE}/namespaces/{{ns}}/configmaps"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
Case = list[Ask]


def plain_pod(name: str = "p", meta: Any = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "x"}]
    return world.pod(name, scheduler="", metadata=meta, **{"containers": containers, **spec})


def custom(path: str, kind: str, name: str, spec: Any, meta: Any = None) -> dict[str, Any]:
    group, version = path.split("/")[2:4]
    head = {"apiVersion": f"{group}/{version}", "kind": kind}
    return {**head, "metadata": {"name": name, **(meta or {})}, "spec": spec}


def sparse_job(name: str = "j", meta: Any = None, **spec: Any) -> dict[str, Any]:
    task = {"name": "t", "replicas": 1, "template": {"spec": plain_pod()["spec"]}}
    return custom(JOBS, "Job", name, {"minAvailable": 1, "tasks": [task], **spec}, meta)


def config(name: str = "m", meta: Any = None, **data: str) -> dict[str, Any]:
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    return {**head, "metadata": {"name": name, **(meta or {})}, "data": data}


POD_UP = Ask("POST", PODS, plain_pod(), keep="code")
ONE_POD = f"{PODS}/p"
SELECTOR = {"matchLabels": {"a": "b"}}


def binding(node: str = "nowhere-{ns}", **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", **meta},
        "target": {"kind": "Node", "name": node},
    }
