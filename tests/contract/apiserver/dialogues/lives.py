"""What every kind is asked: its life, and what it refuses."""

from typing import Any

from tests.contract.apiserver.dialogue import Ask
from tests.contract.apiserver.dialogues.bodies import (
    CORE,
    GROUPS,
    HYPERNODES,
    JOBS,
    MAPS,
    MERGE,
    OTHER,
    PODS,
    QUEUES,
    Case,
    config,
    custom,
    plain_pod,
    sparse_job,
)

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "pod": (PODS, plain_pod("x")),
    "configmap": (MAPS, config("x", k="v")),
    "secret": (
        f"{CORE}/namespaces/{{ns}}/secrets",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"k": "v"}},
    ),
    "service": (
        f"{CORE}/namespaces/{{ns}}/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "x"},
            "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}},
        },
    ),
    "account": (
        f"{CORE}/namespaces/{{ns}}/serviceaccounts",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}},
    ),
    "policy": (
        "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "x"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        },
    ),
    "event": (
        f"{CORE}/namespaces/{{ns}}/events",
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "x"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
            "reason": "Tested",
            "message": "m",
            "type": "Normal",
        },
    ),
    "priority": (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "x-{ns}"},
            "value": 7,
        },
    ),
    "class": (
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "x-{ns}"},
            "provisioner": "example.com/none",
        },
    ),
    "job": (JOBS, sparse_job("x")),
    "podgroup": (GROUPS, custom(GROUPS, "PodGroup", "x", {"minMember": 1})),
    "queue": (QUEUES, custom(QUEUES, "Queue", "x-{ns}", {"weight": 2})),
    "hypernode": (
        HYPERNODES,
        custom(
            HYPERNODES,
            "HyperNode",
            "x-{ns}",
            {
                "tier": 1,
                "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n"}}}],
            },
        ),
    ),
}


def _lives(path: str, body: dict[str, Any]) -> dict[str, Case]:
    """Return what every kind is asked: its life, and what it refuses."""
    name = body["metadata"]["name"]
    one = f"{path}/{name}"
    create = Ask("POST", path, body)
    quiet = create._replace(keep="code")
    end = Ask("DELETE", one, keep="code")
    label = {"metadata": {"labels": {"k": "v"}}}
    bad_name = {**body, "metadata": {"name": "Bad_Name"}}
    bad_label = {**body, "metadata": {"name": name, "labels": {"k": "not ok"}}}
    versioned = {"metadata": {"resourceVersion": "1", "labels": {"k": "v"}}}
    finalized = {**body, "metadata": {"name": name, "finalizers": ["example.com/wait"]}}
    precondition = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": OTHER}}
    free = {"metadata": {"finalizers": None}}
    return {
        "is created": [create, end],
        "is read": [quiet, Ask("GET", one), end],
        "is created once": [quiet, create, end],
        "is not found": [Ask("GET", one), Ask("DELETE", one), Ask("PATCH", one, label, MERGE)],
        "has a proper name": [Ask("POST", path, bad_name, keep="head")],
        "has proper labels": [Ask("POST", path, bad_label, keep="head")],
        "needs a name": [Ask("POST", path, {**body, "metadata": {}}, keep="head")],
        "is not of another kind": [Ask("POST", path, {**body, "kind": "Wrong"}, keep="code")],
        "is labelled": [quiet, Ask("PATCH", one, label, MERGE), end],
        "is patched twice alike": [
            quiet,
            Ask("PATCH", one, label, MERGE, keep="metadata.labels"),
            Ask("PATCH", one, label, MERGE, keep="metadata.generation"),
            end,
        ],
        "is not patched at an old version": [quiet, Ask("PATCH", one, versioned, MERGE), end],
        "is not patched for another uid": [
            quiet,
            Ask("PATCH", one, {"metadata": {"uid": OTHER}}, MERGE, keep="head"),
            end,
        ],
        "is deleted": [quiet, Ask("DELETE", one), Ask("GET", one)],
        "is not deleted for another uid": [quiet, Ask("DELETE", one, precondition), end],
        "waits for its finalizers": [
            create._replace(body=finalized, keep="code"),
            Ask("DELETE", one, keep="metadata"),
            Ask("PATCH", one, free, MERGE, keep="code"),
            Ask("GET", one, until="gone", keep="code"),
        ],
        "is tried dry": [create._replace(query={"dryRun": "All"}, keep="code"), Ask("GET", one)],
        "is replaced": [
            quiet,
            Ask("GET", one, keep="code"),
            Ask(
                "PUT", one, {**body, "metadata": {"name": name, "labels": {"a": "b"}}}, keep="code"
            ),
            end,
        ],
        "is named by the path": [
            quiet,
            Ask("PUT", one, {**body, "metadata": {"name": "other"}}, keep="head"),
            end,
        ],
        "is created with a generated name": [
            Ask(
                "POST",
                path,
                {**body, "metadata": {"generateName": "gen-"}},
                query={"dryRun": "All"},
                keep="metadata.name",
            )
        ],
        "refuses unknown fields when asked to": [
            Ask(
                "POST",
                path,
                {**body, "nonsense": 1},
                query={"fieldValidation": "Strict"},
                keep="head",
            )
        ],
        "drops unknown fields": [create._replace(body={**body, "nonsense": 1}), end],
    }


DIFFERENT = frozenset(("a service needs a name", "a hypernode needs a name"))
"""Not asked: the real server finds further faults in the same object (see the docs)."""
LIVES: dict[str, Case] = {
    name: case
    for kind, of in KINDS.items()
    for sentence, case in _lives(*of).items()
    if (name := f"a {kind} {sentence}") not in DIFFERENT
}
