"""Kinds of CRDs: defaults, schemas, CEL rules, statuses."""

from tests.contract.apiserver.dialogue import Ask
from tests.contract.apiserver.dialogues.bodies import (
    COMMANDS,
    GROUPS,
    HYPERNODES,
    JOBS,
    JSON_PATCH,
    MERGE,
    OTHER,
    QUEUES,
    STRATEGIC,
    Case,
    custom,
    sparse_job,
)

CUSTOM_CASES: dict[str, Case] = {
    "a job has defaults": [Ask("POST", JOBS, sparse_job())],
    "a job has numbers where numbers are due": [Ask("POST", JOBS, sparse_job(minAvailable="one"))],
    "a job has lists where lists are due": [Ask("POST", JOBS, sparse_job(tasks="t"), keep="head")],
    "a job's status is apart": [
        Ask("POST", JOBS, {**sparse_job(), "status": {"running": 3}}, keep="status"),
        Ask("PATCH", f"{JOBS}/j", {"status": {"running": 3}}, MERGE, keep="status"),
        Ask("PATCH", f"{JOBS}/j/status", {"status": {"running": 3}}, MERGE, keep="status"),
        Ask("GET", f"{JOBS}/j", keep="metadata.generation"),
    ],
    "a job's status patch does not change the spec": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask(
            "PATCH",
            f"{JOBS}/j/status",
            {"spec": {"minAvailable": 9}, "status": {"running": 1}},
            MERGE,
            keep="spec.minAvailable",
        ),
    ],
    "a job's status patch ignores another uid": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask(
            "PATCH",
            f"{JOBS}/j/status",
            {"metadata": {"uid": OTHER}, "status": {"running": 1}},
            MERGE,
            keep="status",
        ),
    ],
    "a job's status patch heeds an old version": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask(
            "PATCH",
            f"{JOBS}/j/status",
            {"metadata": {"resourceVersion": "1"}, "status": {"running": 1}},
            MERGE,
        ),
    ],
    "a job's status patch heeds the newest version": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask(
            "PATCH",
            f"{JOBS}/j/status",
            {"metadata": {"resourceVersion": "{rv.j}"}, "status": {"running": 1}},
            MERGE,
            keep="status",
        ),
    ],
    "a job counts its generations": [
        Ask("POST", JOBS, sparse_job(), keep="metadata.generation"),
        Ask("PATCH", f"{JOBS}/j", {"spec": {"minAvailable": 0}}, MERGE, keep="metadata.generation"),
        Ask("PATCH", f"{JOBS}/j", {"metadata": {"labels": {"a": "b"}}}, MERGE, keep="metadata"),
    ],
    "a job is not merged strategically": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask("PATCH", f"{JOBS}/j", {"spec": {}}, STRATEGIC, keep="head"),
    ],
    "a job is patched by operations": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask(
            "PATCH",
            f"{JOBS}/j",
            [{"op": "replace", "path": "/spec/minAvailable", "value": 0}],
            JSON_PATCH,
            keep="spec.minAvailable",
        ),
        Ask(
            "PATCH",
            f"{JOBS}/j",
            [{"op": "test", "path": "/spec/minAvailable", "value": 5}],
            JSON_PATCH,
            keep="code",
        ),
    ],
    "a job needs a kind": [Ask("POST", JOBS, {"metadata": {"name": "j"}, "spec": {}}, keep="code")],
    "a job is replaced only with a version": [
        Ask("POST", JOBS, sparse_job(), keep="code"),
        Ask("PUT", f"{JOBS}/j", sparse_job(), keep="head"),
    ],
    "a hypernode's selector says one thing": [
        Ask(
            "POST",
            HYPERNODES,
            custom(
                HYPERNODES,
                "HyperNode",
                "h-{ns}",
                {"tier": 1, "members": [{"type": "Node", "selector": selector}]},
            ),
            keep="head",
        )
        for selector in ({}, {"exactMatch": {"name": "n"}, "regexMatch": {"pattern": "n"}})
    ],
    "a hypernode's member has a known type": [
        Ask(
            "POST",
            HYPERNODES,
            custom(HYPERNODES, "HyperNode", "h-{ns}", {"tier": 1, "members": [{"type": "Rack"}]}),
            keep="head",
        )
    ],
    "a queue's status is apart": [
        Ask("POST", QUEUES, custom(QUEUES, "Queue", "q-{ns}", {}), keep="spec"),
        Ask(
            "PATCH",
            f"{QUEUES}/q-{{ns}}/status",
            {"status": {"state": "Open"}},
            MERGE,
            keep="status",
        ),
        Ask("DELETE", f"{QUEUES}/q-{{ns}}"),
    ],
    "a group has no apart status": [
        Ask("POST", GROUPS, custom(GROUPS, "PodGroup", "g", {"minMember": 1}), keep="code"),
        Ask("PATCH", f"{GROUPS}/g", {"status": {"phase": "Inqueue"}}, MERGE, keep="status"),
        Ask("PATCH", f"{GROUPS}/g/status", {"status": {"phase": "Running"}}, MERGE, keep="code"),
    ],
    "a command holds more than a spec": [
        Ask(
            "POST",
            COMMANDS,
            {
                "apiVersion": "bus.volcano.sh/v1alpha1",
                "kind": "Command",
                "metadata": {"name": "c"},
                "action": "AbortJob",
                "target": {"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "u"},
            },
        )
    ],
}
