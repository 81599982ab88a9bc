"""Pods: what they need, how they are bound, run, stopped and evicted."""

from tests.contract.apiserver.dialogue import Ask
from tests.contract.apiserver.dialogues.bodies import (
    BUDGETS,
    CORE,
    MERGE,
    ONE_POD,
    OTHER,
    POD_UP,
    PODS,
    SELECTOR,
    STRATEGIC,
    Case,
    binding,
    plain_pod,
)

_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n-{ns}", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}},
}
_NODE_UP = [
    Ask("POST", f"{CORE}/nodes", _NODE, keep="code"),
    Ask("GET", f"{CORE}/nodes/n-{{ns}}", until="status.phase=Running", keep="code"),
]
_NODE_DOWN = [Ask("DELETE", f"{CORE}/nodes/n-{{ns}}", keep="code")]
_RUN = [
    Ask("POST", f"{ONE_POD}/binding", binding("n-{ns}"), keep="code"),
    Ask("GET", ONE_POD, until="status.phase=Running", keep="status.phase"),
]
_FORCE = {"gracePeriodSeconds": "0"}


def _runs(**annotations: str) -> Ask:
    notes = {f"pumice.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return Ask(
        "POST", PODS, plain_pod(meta={"annotations": notes, "labels": {"a": "b"}}), keep="code"
    )


PODS_CASES: dict[str, Case] = {
    "is bound": [
        POD_UP,
        Ask("POST", f"{ONE_POD}/binding", binding(annotations={"k": "v"})),
        Ask("GET", ONE_POD, keep="spec.nodeName"),
        Ask("GET", ONE_POD, keep="metadata.annotations"),
        Ask("GET", ONE_POD, keep="metadata.generation"),
    ],
    "is bound once": [
        POD_UP,
        Ask("POST", f"{ONE_POD}/binding", binding(), keep="code"),
        Ask("POST", f"{ONE_POD}/binding", binding("other")),
    ],
    "is not bound for another uid": [POD_UP, Ask("POST", f"{ONE_POD}/binding", binding(uid=OTHER))],
    "is not bound at an old version": [
        POD_UP,
        Ask("POST", f"{ONE_POD}/binding", binding(resourceVersion="1"), keep="head"),
    ],
    "is bound only if it exists": [Ask("POST", f"{ONE_POD}/binding", binding())],
    "is not bound while it is deleted": [
        Ask("POST", PODS, plain_pod(meta={"finalizers": ["example.com/wait"]}), keep="code"),
        Ask("DELETE", ONE_POD, keep="metadata"),
        Ask("POST", f"{ONE_POD}/binding", binding()),
        Ask("PATCH", ONE_POD, {"metadata": {"finalizers": None}}, MERGE, keep="code"),
    ],
    "is not bound through its gates": [
        Ask("POST", PODS, plain_pod(schedulingGates=[{"name": "example.com/g"}]), keep="code"),
        Ask("POST", f"{ONE_POD}/binding", binding(), keep="head"),
    ],
    "needs containers": [Ask("POST", PODS, plain_pod(containers=[]), keep="head")],
    "needs an image": [Ask("POST", PODS, plain_pod(containers=[{"name": "c"}]), keep="head")],
    "has containers of different names": [
        Ask("POST", PODS, plain_pod(containers=[{"name": "c", "image": "x"}] * 2), keep="head")
    ],
    "has proper container names": [
        Ask("POST", PODS, plain_pod(containers=[{"name": "C_", "image": "x"}]), keep="head")
    ],
    "has a known restart policy": [
        Ask("POST", PODS, plain_pod(restartPolicy="Perhaps"), keep="head")
    ],
    "has numbers where numbers are due": [
        Ask("POST", PODS, plain_pod(terminationGracePeriodSeconds="soon"), keep="code")
    ],
    "has a known priority class": [Ask("POST", PODS, plain_pod(priorityClassName="no-{ns}"))],
    "has no priority of its own": [Ask("POST", PODS, plain_pod(priority=5), keep="code")],
    "has a system priority": [
        Ask("POST", PODS, plain_pod(priorityClassName="system-node-critical"), keep="spec.priority")
    ],
    "has a known account": [Ask("POST", PODS, plain_pod(serviceAccountName="nobody"))],
    "has the requests of its limits": [
        Ask(
            "POST",
            PODS,
            plain_pod(
                containers=[
                    {
                        "name": "c",
                        "image": "x:1",
                        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                        "ports": [{"containerPort": 80}],
                        "env": [
                            {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                        ],
                    }
                ],
                restartPolicy="Never",
                schedulerName="volcano",
            ),
        )
    ],
    "keeps its spec": [
        POD_UP,
        Ask("PATCH", ONE_POD, {"spec": {"restartPolicy": "Never"}}, MERGE, keep="head"),
    ],
    "is not bound by a patch": [
        POD_UP,
        Ask("PATCH", ONE_POD, {"spec": {"nodeName": "n"}}, MERGE, keep="head"),
    ],
    "may get another image": [
        POD_UP,
        Ask(
            "PATCH",
            ONE_POD,
            {"spec": {"containers": [{"name": "c", "image": "y"}]}},
            STRATEGIC,
            keep="spec",
        ),
    ],
    "merges conditions by type": [
        POD_UP,
        *(
            Ask(
                "PATCH",
                f"{ONE_POD}/status",
                {"status": {"conditions": [{"type": t, "status": "False", "reason": "R"}]}},
                STRATEGIC,
                keep="status.conditions",
            )
            for t in ("PodScheduled", "Other", "PodScheduled")
        ),
    ],
    "replaces conditions in a merge patch": [
        POD_UP,
        Ask(
            "PATCH",
            f"{ONE_POD}/status",
            {"status": {"conditions": [{"type": "A", "status": "True"}]}},
            MERGE,
            keep="status",
        ),
    ],
    "has its nomination in the status": [
        POD_UP,
        Ask(
            "PATCH",
            f"{ONE_POD}/status",
            {"status": {"nominatedNodeName": "n"}},
            STRATEGIC,
            keep="status.nominatedNodeName",
        ),
    ],
    "does not change its spec through the status": [
        POD_UP,
        Ask("PATCH", f"{ONE_POD}/status", {"spec": {"nodeName": "n"}}, MERGE, keep="spec.nodeName"),
    ],
    "has no status of its own at birth": [
        Ask("POST", PODS, {**plain_pod(), "status": {"phase": "Running"}}, keep="status")
    ],
    "has no status patched for another uid": [
        POD_UP,
        Ask(
            "PATCH",
            f"{ONE_POD}/status",
            {"metadata": {"uid": OTHER}, "status": {"nominatedNodeName": "n"}},
            STRATEGIC,
            keep="head",
        ),
    ],
    "is gone at once while it is not bound": [POD_UP, Ask("DELETE", ONE_POD), Ask("GET", ONE_POD)],
    "is stopped with grace": [
        *_NODE_UP,
        _runs(stop_seconds="1"),
        *_RUN,
        Ask("DELETE", ONE_POD, keep="metadata"),
        Ask("GET", ONE_POD, until="gone", keep="code"),
        *_NODE_DOWN,
    ],
    "stops at once when forced": [
        *_NODE_UP,
        _runs(stop_seconds="30"),
        *_RUN,
        Ask("DELETE", ONE_POD, query=_FORCE, keep="metadata"),
        Ask("GET", ONE_POD, keep="code"),
        *_NODE_DOWN,
    ],
    "runs on a fake node": [*_NODE_UP, _runs(), *_RUN, Ask("GET", ONE_POD), *_NODE_DOWN],
    "ends as its annotations say": [
        *_NODE_UP,
        _runs(run_seconds="0", exit_code="3"),
        Ask("POST", f"{ONE_POD}/binding", binding("n-{ns}"), keep="code"),
        Ask("GET", ONE_POD, until="status.phase=Failed", keep="status"),
        *_NODE_DOWN,
    ],
    "completes": [
        *_NODE_UP,
        _runs(run_seconds="0"),
        Ask("POST", f"{ONE_POD}/binding", binding("n-{ns}"), keep="code"),
        Ask("GET", ONE_POD, until="status.phase=Succeeded", keep="status.phase"),
        *_NODE_DOWN,
    ],
    "is evicted": [
        POD_UP,
        Ask("POST", f"{ONE_POD}/eviction", {"metadata": {"name": "p"}}),
        Ask("GET", ONE_POD, until="gone", keep="code"),
    ],
    "is not evicted against its budget": [
        *_NODE_UP,
        _runs(),
        *_RUN,
        Ask(
            "POST",
            BUDGETS,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b"},
                "spec": {"minAvailable": 1, "selector": SELECTOR},
            },
            keep="code",
        ),
        Ask("GET", f"{BUDGETS}/b", until="status.currentHealthy=1", keep="status"),
        Ask("POST", f"{ONE_POD}/eviction", {"metadata": {"name": "p"}}, keep="head"),
        *_NODE_DOWN,
    ],
}
