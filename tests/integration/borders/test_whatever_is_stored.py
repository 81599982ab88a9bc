"""Whatever the API server stores of our kinds, no service stumbles over it."""

import copy
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.borders.conftest import Borders
from tests.support import world
from tests.support.api import ApiError

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

Json = dict[str, Any]
EACH = 100
"""Objects of each kind that are tried; the server refuses more than half of them."""
BATCH, SCHEDULING = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
FLOW, TOPOLOGY = "flow.volcano.sh/v1alpha1", "topology.volcano.sh/v1alpha1"
TIERS = {"mode": "hard", "highestTierAllowed": 1}
LITTLE = "10m"
"""What a sound PodGroup or Queue reserves: a hundred of them leave the cluster to others."""
TEMPLATE = world.task("w", 1, cpu="100m", memory="16Mi")["template"]
JOB: Json = {
    "minAvailable": 1,
    "schedulerName": "volcano",
    "maxRetry": 2,
    "ttlSecondsAfterFinished": 5,
    "minSuccess": 1,
    "networkTopology": TIERS,
    "plugins": {"svc": [], "env": [], "ssh": [], "mpi": ["--master=a", "--worker=b"]},
    "policies": [{"events": ["PodEvicted"], "action": "RestartJob", "timeout": "5m"}],
    "volumes": [{"mountPath": "/e", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}],
    "tasks": [
        {
            "name": "a",
            "replicas": 2,
            "minAvailable": 1,
            "maxRetry": 1,
            "policies": [{"exitCode": 3, "action": "CompleteJob"}],
            "topologyPolicy": "none",
            "dependsOn": {"name": ["b"], "iteration": "any"},
            "partitionPolicy": {"totalPartitions": 2, "partitionSize": 1, "minPartitions": 1},
            "template": TEMPLATE,
        },
        {"name": "b", "replicas": 1, "template": TEMPLATE},
    ],
}
SPECS: dict[str, tuple[str, str, Json]] = {
    "jobs": (BATCH, "Job", JOB),
    "podgroups": (
        SCHEDULING,
        "PodGroup",
        {
            "minMember": 1,
            "queue": "default",
            "minResources": {"cpu": LITTLE},
            "minTaskMember": {"a": 1},
            "priorityClassName": "system-node-critical",
            "networkTopology": TIERS,
            "subGroupPolicy": [
                {"name": "s", "subGroupSize": 1, "matchLabelKeys": ["a"], "networkTopology": TIERS}
            ],
        },
    ),
    "queues": (
        SCHEDULING,
        "Queue",
        {
            "weight": 1,
            "parent": "root",
            "reclaimable": True,
            "priority": 1,
            "capability": {"cpu": "1", "memory": "1Gi"},
            "deserved": {"cpu": "1"},
            "guarantee": {"resource": {"cpu": LITTLE}},
        },
    ),
    "jobflows": (
        FLOW,
        "JobFlow",
        {
            "jobRetainPolicy": "delete",
            "flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}],
        },
    ),
    "cronjobs": (
        BATCH,
        "CronJob",
        {
            "schedule": "* * * * *",
            "timeZone": "Europe/Berlin",
            "startingDeadlineSeconds": 30,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 1,
            "suspend": False,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": JOB},
        },
    ),
    "hypernodes": (
        TOPOLOGY,
        "HyperNode",
        {
            "tier": 1,
            "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "nobody"}}},
                {"type": "Node", "selector": {"regexMatch": {"pattern": "^nobody-[0-9]+$"}}},
                {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"no": "body"}}}},
            ],
        },
    ),
}
ODD: list[Any] = [
    0, -1, 1, 7, 2**31 - 1, 2**31, True, "", "x", "X Y", "ü", "a/b", "..", "x" * 300, "-1",
    "nobody", "1e5.5", "9" * 5000, "500m", "1e-999", "* * * * * *", "0 0 30 2 *", "@every 9e9h",
    "@every 1s", "TZ=x * * * * *", "Europe/../x", "((", "a{9999999999}", "(?P<n>a)(?P<n>b)",
    "PodFailed", "*", "Sync", "AbortJob", "9999999999h", "--port=99999999999999999999", "--master=",
    "default", [], ["x"], ["x", "x"], [7], [{}], {}, {"x": "y"}, {"cpu": "-1"}, {"cpu": "1e5.5"},
    {"x": {}},
]  # fmt: skip


def places(value: object, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to each value within a value."""
    found = [here] if here else []
    if isinstance(value, dict):
        found += [way for key in value for way in places(value[key], (*here, key))]
    if isinstance(value, list):
        found += [way for n, item in enumerate(value) for way in places(item, (*here, n))]
    return found


def spoilt(rng: random.Random, sound: Json) -> Json:
    """Return a spec in which one value or two are others, gone or new."""
    whole = copy.deepcopy(sound)
    for _ in range(rng.choice([1, 1, 2])):
        *way, last = rng.choice(places(whole))
        holder: Any = whole
        for key in way:
            holder = holder[key]
        if rng.random() < 0.2:
            del holder[last]
        elif isinstance(holder, list) and rng.random() < 0.3:
            holder.append(copy.deepcopy(rng.choice([*ODD, *holder])))
        else:
            holder[last] = copy.deepcopy(rng.choice(ODD))
    return whole


@asynccontextmanager
async def odd_objects(borders: Borders, plural: str) -> AsyncIterator[list[str]]:
    """Store what the server takes of odd objects, and remove it whatever the test finds."""
    version, kind, sound = SPECS[plural]
    rng = random.Random(plural)
    namespace = "" if plural in {"queues", "hypernodes"} else borders.namespace
    stored: list[str] = []
    try:
        for number in range(EACH):
            name = f"{borders.namespace}-{plural[:2]}-{number}"
            body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
            try:
                await borders.api.create(plural, {**body, "spec": spoilt(rng, sound)}, namespace)
            except ApiError as refusal:
                if refusal.status >= 500:
                    raise
            else:
                stored.append(name)
        yield stored
    finally:
        for name in stored:
            await remove(borders, plural, namespace, name)


async def remove(borders: Borders, plural: str, namespace: str, name: str) -> None:
    """Delete an object; a job that is over may have been cleared away before."""
    try:
        await borders.api.delete(plural, namespace, name)
    except ApiError as refusal:
        if refusal.status != 404:
            raise


@pytest.mark.parametrize("plural", list(SPECS))
async def test_no_service_stumbles_over_what_is_stored(plural: str, borders: Borders) -> None:
    async with odd_objects(borders, plural) as stored:
        assert len(stored) > 5, "the server refuses nearly all: nothing is tried"
        await borders.a_good_job_runs()
    await borders.a_good_job_runs()
