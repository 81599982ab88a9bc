"""Objects that the API server stores and that no service may stumble over."""

import random
from collections.abc import Iterator

from tests.support import world

MOST = str(2**63 - 1)
BATCH = "batch.volcano.sh/v1alpha1"
SCHEDULING = "scheduling.volcano.sh/v1beta1"


def bare_pod(name: str, *requests: dict[str, str], node: str = "", **notes: str) -> dict:
    """Return a bare pod of ours with a container per `requests`."""
    containers = [
        {"name": f"c{i}", "image": "busybox", "resources": {"requests": wanted, "limits": wanted}}
        for i, wanted in enumerate(requests)
    ]
    place = {"nodeName": node} if node else {}
    spec = {"containers": containers, "restartPolicy": "Never", **place}
    return world.pod(name, annotations=notes, **spec)


def hostile_objects(rng: random.Random) -> Iterator[tuple[str, dict]]:
    """Yield plural and body of each object; names carry a drawn number."""
    n = f"{rng.randrange(10**6):06d}"
    yield "pods", bare_pod(f"two-times-4ei-{n}", {"memory": "4Ei"}, {"memory": "4Ei"})
    yield "pods", bare_pod(f"almost-8ei-{n}", {"memory": MOST})
    yield "pods", bare_pod(f"cpu-without-end-{n}", {"cpu": MOST})
    for i in range(3):
        yield "pods", bare_pod(f"fills-a-node-{i}-{n}", {"memory": "7Ei"}, node="node-0")
    yield "pods", bare_pod(f"extended-{n}", {"example.com/x": MOST}, {"example.com/x": MOST})
    yield (
        "pods",
        bare_pod(f"group-of-nobody-{n}", {"cpu": "1"}, **{"scheduling.k8s.io/group-name": "x"}),
    )
    huge = world.task("w", 2, cpu=MOST, memory="7Ei")
    yield "jobs", world.job(f"huge-{n}", huge)
    many = world.job(f"minimum-of-millions-{n}", world.task("w", 1))
    many["spec"]["minAvailable"] = 2**31 - 1
    yield "jobs", many
    odd = world.job(f"odd-policies-{n}", world.task("w", 1), policies=[{"event": "x" * 4096}])
    yield "jobs", odd
    yield "jobs", world.job(f"no-queue-{n}", world.task("w", 1), queue="no-such-queue")
    group = {"minMember": 2**31 - 1, "minResources": {"cpu": MOST, "memory": "8Ei"}}
    yield "podgroups", _of(SCHEDULING, "PodGroup", f"wants-all-{n}", group)
    yield "podgroups", _of(SCHEDULING, "PodGroup", f"less-than-none-{n}", {"minMember": -5})
    queue = {"weight": 2**31 - 1, "capability": {"cpu": MOST, "memory": "8Ei"}}
    yield "queues", _of(SCHEDULING, "Queue", f"all-for-me-{n}", queue)
    yield "queues", _of(SCHEDULING, "Queue", f"own-parent-{n}", {"parent": f"own-parent-{n}"})
    target = {"apiVersion": BATCH, "kind": "Job", "name": f"no-such-job-{n}", "uid": "none"}
    command = _of("bus.volcano.sh/v1alpha1", "Command", f"to-nothing-{n}", None)
    yield "commands", {**command, "action": "x" * 1000, "target": target}
    flow = {"flows": [{"name": "a", "dependsOn": {"targets": ["b"]}}, {"name": "b"}] * 3}
    yield "jobflows", _of("flow.volcano.sh/v1alpha1", "JobFlow", f"round-{n}", flow)
    cron = {"schedule": "0 0 30 2 *", "jobTemplate": {"spec": world.job("x", huge)["spec"]}}
    yield "cronjobs", _of(BATCH, "CronJob", f"never-{n}", cron)
    member = {"type": "Node", "selector": {"regexMatch": {"pattern": "(a|aa)+$" * 20}}}
    network = {"tier": 2**31 - 1, "members": [member]}
    yield "hypernodes", _of("topology.volcano.sh/v1alpha1", "HyperNode", f"regex-{n}", network)


def _of(version: str, kind: str, name: str, spec: dict | None) -> dict:
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
    return body if spec is None else {**body, "spec": spec}
