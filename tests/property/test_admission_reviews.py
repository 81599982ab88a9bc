"""Whatever is in a review, its hook answers with a verdict: it never fails, and its patches hold.

Reviews begin as valid ones; then values are replaced by others, taken away or added, anywhere. What
the API server could never send is tried, too: hooks that change objects see them before any schema.
"""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.admission.adapters.server import answer, read_review
from services.admission.rules.catalogue import HOOKS
from services.admission.rules.groups import read_configuration
from services.admission.rules.review import ReviewFacts, Terms
from shared.api import keys
from shared.api.lenient import lenient
from shared.api.scheduling import Queue
from shared.runtime.errors import Rejected
from tests.unit.admission.asking import Json, queue_named, sparse_job, task

GROUPS = read_configuration("""
resourceGroups:
- resourceGroup: by-namespace
  object: {key: namespace, value: [ns]}
  schedulerName: volcano
  labels: {kind: cpu}
  tolerations: [{key: taint, operator: Exists}]
  affinity: '{"nodeAffinity": {}}'
""").resource_groups
TERMS = Terms(resource_groups=GROUPS, check_allocated_pods=True)
QUEUES = [
    queue_named("default"),
    queue_named("root"),
    queue_named("a", parent="root", capability={"cpu": "4"}, deserved={"cpu": 2}),
    queue_named(
        "b",
        parent="a",
        annotations={"volcano.sh/hierarchy": "root/a/b", "volcano.sh/hierarchy-weights": "1/1/1"},
    ),
]
FACTS = ReviewFacts(
    queues={queue["metadata"]["name"]: lenient(queue, Queue) for queue in QUEUES},
    namespace_annotations={"scheduling.volcano.sh/queue-name": "team"},
)
TIERS = {"mode": "hard", "highestTierAllowed": 1}
POD = {
    "hostNetwork": True,
    "restartPolicy": "Never",
    "overhead": {"cpu": "1m"},
    "resources": {"requests": {"cpu": "2"}},
    "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "containers": [
        {
            "name": "c",
            "image": "i",
            "env": [{"name": "A", "value": "b"}],
            "ports": [{"containerPort": 80, "name": "p"}],
            "volumeMounts": [{"name": "v", "mountPath": "/x"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": 1}},
        }
    ],
}
VALID_OBJECTS: dict[str, Json] = {
    "jobs": sparse_job(
        task(
            "a",
            3,
            minAvailable=3,
            policies=[{"event": "PodFailed", "action": "RestartJob", "timeout": "5m"}],
            dependsOn={"name": ["b"], "iteration": "any"},
            partitionPolicy={"totalPartitions": 3, "partitionSize": 1, "networkTopology": TIERS},
            topologyPolicy="restricted",
            template={"metadata": {"labels": {"a": "b"}}, "spec": POD},
        ),
        task("b", 2),
        minAvailable=2,
        plugins={
            "svc": ["--disable-network-policy=true"], "ssh": [], "env": [], "ray": [],
            "mpi": ["--master=a", "--worker=b", "--port=22"], "pytorch": ["--master=a"],
            "tensorflow": ["--port=5000"], "hcclrank": [],
        },
        volumes=[
            {"mountPath": "/d", "volumeClaimName": "c"},
            {"mountPath": "/e", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}},
        ],
        maxRetry=2,
        ttlSecondsAfterFinished=3,
        minSuccess=1,
        networkTopology={"mode": "hard", "highestTierName": "t"},
        policies=[{"events": ["PodEvicted", "PodFailed"], "action": "AbortJob"},
                  {"exitCode": 3, "action": "CompleteJob"}],
    ),
    "podgroups": {
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {
            "queue": "default", "minMember": 2, "networkTopology": TIERS,
            "subGroupPolicy": [{"name": "a", "networkTopology": TIERS}],
            "minResources": {"cpu": "1"},
        },
    },
    "pods": {
        "metadata": {
            "name": "p", "namespace": "ns",
            "annotations": {"volcano.sh/jdb-min-available": "50%"},
        },
        "spec": {
            "schedulerName": "volcano", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}],
        },
    },
    "queues": queue_named(
        "q",
        annotations={"volcano.sh/hierarchy": "root/q", "volcano.sh/hierarchy-weights": "1/2"},
        parent="a",
        reclaimable=True,
        capability={"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": 2},
        deserved={"cpu": "2"},
        guarantee={"resource": {"cpu": "1"}},
    ),
    "jobflows": {
        "metadata": {"name": "f", "namespace": "ns"},
        "spec": {"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]},
    },
    "cronjobs": {
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {
            "schedule": "*/5 * * * *", "timeZone": "Europe/Berlin",
            "jobTemplate": {"spec": sparse_job()["spec"]},
        },
    },
    "hypernodes": {
        "metadata": {"name": "h"},
        "spec": {
            "tier": 1,
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "a"}}},
                {"type": "Node", "selector": {"regexMatch": {"pattern": "^a-[0-9]+$"}}},
                {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}},
            ],
        },
    },
}  # fmt: skip

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, 1.5, 1e308, -0.0,
    "", "x", "x" * 300, "9" * 5000, "+-5", "٣", "ünï", "a/b", "\x00", "\ud83d", "..", "-", "=",
    "5%", "-5%", "1e999", "1e-999", "1e1.5", ".", "1_0", "nan", "inf", "0x10", "1Gi", "-1",
    "* * * * * *", "*/0 * * * *", "60 * * * *", "TZ=x * * * * *", "@every -1s", "@every 9e9h",
    "((", "[", "a{99999999999}", "a{2,1}", "(?P<n>a)(?P<n>b)", "\\8", "*", "(?(1)a)", "\\",
    "PodFailed", "AbortJob", "default", "root", "Local", "Europe", "/etc/passwd", "../x",
    "zone.tab", "9999999999999999h", "--port=abc", "--port=99999999999999999999", "--master=", "--",
    [], [[]], [None], [1, "a", None, {}], {}, {"": None}, {"name": 1}, {"cpu": []}, {"cpu": {}},
    {"cpu": "-1"}, {"a": {"b": {"c": []}}},
]  # fmt: skip


def places(value: object, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to each value within a value."""
    found = [here] if here else []
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in inside:
        found += places(inner, (*here, key))
    return found


@st.composite
def mutated(draw: st.DrawFn, valid: Json) -> Json:
    """Return an object in which up to four values are others, gone or new."""
    whole = copy.deepcopy(valid)
    for _ in range(draw(st.integers(0, 4))):
        if not (ways := places(whole)):
            break
        *way, last = draw(st.sampled_from(ways))
        holder: Any = whole
        for key in way:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"])):
            case "remove":
                del holder[last]
            case "add" if isinstance(holder, list):
                holder.append(copy.deepcopy(draw(st.sampled_from([*ODD, *holder]))))
            case "add":
                holder[str(draw(st.sampled_from(ODD)))] = copy.deepcopy(draw(st.sampled_from(ODD)))
            case _:
                holder[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return whole


def judged(path: str, asked: object) -> Json | None:
    """Return the response to a review; None when it was refused as none."""
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    try:
        uid, request = read_review(json.dumps(whole).encode())
    except Rejected:
        return None
    review = json.loads(answer(uid, HOOKS[path].review(request, FACTS, TERMS)))
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = review["response"]
    assert response["uid"] == uid
    return response


def patched(obj: Json, patch: list[Json]) -> Json:
    """Return an object with a JSON patch of changes in objects applied."""
    whole = copy.deepcopy(obj)
    for change in patch:
        assert change["op"] in {"add", "replace", "remove"}
        *way, last = (
            part.replace("~1", "/").replace("~0", "~") for part in change["path"][1:].split("/")
        )
        holder: Any = whole
        for key in way:
            holder = holder[key]
        assert change["op"] == "add" or last in holder, "only what is there can be replaced"
        if change["op"] == "remove":
            del holder[last]
        else:
            holder[last] = change["value"]
    return whole


@pytest.mark.parametrize("path", list(HOOKS))
@settings(max_examples=80)
@given(data=st.data())
def test_every_review_has_an_answer_that_names_a_field(path: str, data: st.DataObject) -> None:
    valid = VALID_OBJECTS[HOOKS[path].resource]
    operation = data.draw(st.sampled_from(["CREATE", "CREATE", "UPDATE", "DELETE", "CONNECT", ""]))
    asked = {
        "uid": "u",
        "operation": operation,
        "resource": {"resource": HOOKS[path].resource},
        "name": "n",
        "namespace": "ns",
        "object": data.draw(mutated(valid)),
        "oldObject": data.draw(st.one_of(st.none(), st.just(valid), mutated(valid))),
    }
    response = judged(path, asked)
    if response is None or response["allowed"]:
        return
    assert response["status"]["message"]
    causes = response["status"]["details"]["causes"]
    assert causes
    if operation in HOOKS[path].operations:
        assert all(cause["field"] for cause in causes), causes


@pytest.mark.parametrize("path", [path for path, hook in HOOKS.items() if hook.mutates])
@settings(max_examples=80)
@given(data=st.data())
def test_a_patch_can_be_applied_and_once_is_enough(path: str, data: st.DataObject) -> None:
    obj = data.draw(mutated(VALID_OBJECTS[HOOKS[path].resource]))

    def change(stated: Json) -> Json:
        asked = {"uid": "u", "operation": "CREATE", "namespace": "ns", "object": stated}
        response = judged(path, asked)
        if response is None or "patch" not in response:
            return stated
        return patched(stated, json.loads(base64.b64decode(response["patch"])))

    once = change(obj)
    if path != "/pods/mutate":  # tolerations are added each time, as in Volcano
        assert change(once) == once


@settings(max_examples=100)
@given(data=st.data())
def test_no_requester_can_choose_the_user_of_an_object(data: st.DataObject) -> None:
    resource = data.draw(st.sampled_from(["jobs", "cronjobs", "jobflows", "podgroups", "pods"]))
    users = st.sampled_from(["", "ann", "bob"])

    def stated(user: str) -> Json:
        obj = copy.deepcopy(VALID_OBJECTS[resource])
        if user:
            obj["metadata"].setdefault("annotations", {})[keys.USER] = user
        return obj

    obj, old = stated(data.draw(users)), data.draw(st.none() | users)
    asked = {
        "uid": "u",
        "operation": "CREATE" if old is None else "UPDATE",
        "resource": {"resource": resource},
        "namespace": "ns",
        "userInfo": {"username": "ann"},
        "object": obj,
        "oldObject": None if old is None else stated(old),
    }
    response = judged("/users/mutate", asked)
    assert response is not None
    assert response["allowed"]
    stored = patched(obj, json.loads(base64.b64decode(response.get("patch", "W10="))))
    found = (stored["metadata"].get("annotations") or {}).get(keys.USER, "")
    assert found == ("ann" if old is None else old)


@settings(max_examples=100)
@given(data=st.data())
def test_a_request_of_any_form_is_answered_or_refused(data: st.DataObject) -> None:
    asked = {
        "uid": "u",
        "operation": "CREATE",
        "resource": {"group": "g", "resource": "jobs"},
        "object": VALID_OBJECTS["jobs"],
        "dryRun": True,
    }
    judged("/jobs/validate", data.draw(mutated(asked)))
