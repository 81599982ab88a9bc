"""Jobs on a real API server, with the cache and the controller as processes."""

from collections import Counter
from typing import Any

import pytest

from tests.integration.controller.conftest import Hand
from tests.support.fleet import Service
from tests.support.wait import until
from tests.support.world import job, pod, task

pytestmark = pytest.mark.asyncio(loop_scope="session")


def on(event: str, action: str) -> dict[str, str]:
    return {"event": event, "action": action}


async def events(hand: Hand) -> list[tuple[str, str]]:
    found = await hand.api.items("events", hand.namespace)
    return [(event["reason"], event["message"]) for event in found]


async def test_a_job_goes_from_yaml_to_completed(controller: Service, hand: Hand) -> None:
    await hand.submit(job("plain", task("a", 2), task("b", 1)))
    pods = await hand.wait_pods(3)
    assert set(pods) == {"plain-a-0", "plain-a-1", "plain-b-0"}
    await hand.run_all()
    await hand.wait_job("plain", "Running")
    for name in pods:
        await hand.report(name, "Succeeded", 0)
    done = await hand.wait_job("plain", "Completed")
    assert done["status"]["succeeded"] == 3
    told = [condition["status"] for condition in done["status"]["conditions"]]
    assert told == ["Pending", "Running", "Completed"]

    async def without_group() -> bool:
        return await hand.api.items("podgroups", hand.namespace) == []

    await until(without_group, describe="a finished job has no PodGroup (J21)")


async def test_the_tensorflow_way_completed_workers_end_the_server(
    controller: Service, hand: Hand
) -> None:
    workers = task("worker", 2, policies=[on("TaskCompleted", "CompleteJob")])
    await hand.submit(
        job(
            "tf",
            task("ps", 1),
            workers,
            plugins={"env": [], "svc": []},
            policies=[on("PodEvicted", "RestartJob")],
        )
    )
    pods = await hand.wait_pods(3)
    service = await hand.api.get("services", hand.namespace, "tf")
    assert service["spec"]["clusterIP"] == "None"
    hosts = await hand.api.get("configmaps", hand.namespace, "tf-svc")
    assert hosts["data"]["worker.host"] == "tf-worker-0.tf\ntf-worker-1.tf"
    env = {e["name"]: e.get("value") for e in pods["tf-worker-1"]["spec"]["containers"][0]["env"]}
    assert env["VK_TASK_INDEX"] == "1"
    await hand.run_all()
    await hand.wait_job("tf", "Running")
    for index in range(2):
        await hand.report(f"tf-worker-{index}", "Succeeded", 0)
    done = await hand.wait_job("tf", "Completed")
    assert done["status"].get("retryCount", 0) == 0
    await hand.wait_pods(2)


async def test_pods_wait_until_the_group_is_in_the_queue(controller: Service, hand: Hand) -> None:
    hand.admits = False
    await hand.submit(job("gated", task("a", 2)))

    async def has_group() -> bool:
        return len(await hand.api.items("podgroups", hand.namespace)) == 1

    await until(has_group, describe="a PodGroup")
    await hand.wait_job("gated", "Pending")
    assert await hand.pods() == {}
    hand.admits = True
    await hand.wait_pods(2)


@pytest.mark.parametrize(
    ("action", "phase"),
    [("AbortJob", "Aborted"), ("TerminateJob", "Terminated"), ("CompleteJob", "Completed")],
)
async def test_a_failed_pod_does_to_the_job_what_the_policy_says(
    controller: Service, hand: Hand, action: str, phase: str
) -> None:
    await hand.submit(job("policy", task("a", 2), policies=[on("PodFailed", action)]))
    await hand.wait_pods(2)
    await hand.run_all()
    await hand.wait_job("policy", "Running")
    await hand.report("policy-a-0", "Failed", 1)
    ended = await hand.wait_job("policy", phase)
    assert ended["status"]["failed"] == 1
    assert ended["status"]["version"] >= 1


async def test_an_evicted_pod_restarts_the_job_once(controller: Service, hand: Hand) -> None:
    await hand.submit(job("evicted", task("a", 3), policies=[on("PodEvicted", "RestartJob")]))
    before = await hand.wait_pods(3)
    await hand.run_all()
    await hand.wait_job("evicted", "Running")
    await hand.api.delete("pods", hand.namespace, "evicted-a-1", grace_s=0)
    after = await hand.wait_pods(3, **{"volcano.sh/job-version": "1"})
    uids = {pod["metadata"]["uid"] for pod in before.values()}
    assert uids.isdisjoint(pod["metadata"]["uid"] for pod in after.values())
    await hand.run_all()
    running = await hand.wait_job("evicted", "Running")
    assert running["status"]["retryCount"] == 1
    reasons = {reason for reason, _ in await events(hand)}
    assert {"ExecuteAction", "SuccessfulCreate"} <= reasons


async def test_a_job_is_suspended_and_resumed_by_commands(controller: Service, hand: Hand) -> None:
    await hand.submit(job("ordered", task("a", 2)))
    await hand.wait_pods(2)
    uid = (await hand.job("ordered"))["metadata"]["uid"]

    async def order(action: str) -> None:
        target = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "name": "ordered",
            "uid": uid,
        }
        body = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"generateName": "ordered-"},
            "action": action,
            "target": target,
        }
        await hand.api.create("commands", body, hand.namespace)

    await order("AbortJob")
    await hand.wait_job("ordered", "Aborted")
    await hand.wait_pods(0)
    await order("ResumeJob")
    await hand.wait_pods(2)

    async def no_command() -> bool:
        return await hand.api.items("commands", hand.namespace) == []

    await until(no_command, describe="commands are deleted once they are recorded")


async def test_a_bare_pod_gets_a_group_of_its_own(controller: Service, hand: Hand) -> None:
    made = await hand.api.create("pods", pod("bare", cpu="1"), hand.namespace)
    name = f"podgroup-{made['metadata']['uid']}"

    async def is_named() -> bool:
        found = await hand.api.get("pods", hand.namespace, "bare")
        annotations = found["metadata"].get("annotations", {})
        return bool(annotations.get("scheduling.k8s.io/group-name") == name)

    await until(is_named, describe="the pod names its group (P01)")
    group = await hand.api.get("podgroups", hand.namespace, name)
    assert group["spec"]["minMember"] == 1
    assert group["spec"]["minResources"]["cpu"] == "1"


async def test_the_default_queues_exist_and_are_open(controller: Service, hand: Hand) -> None:
    async def states() -> dict[str, str]:
        queues = await hand.api.items("queues")
        return {q["metadata"]["name"]: q.get("status", {}).get("state", "") for q in queues}

    async def both_open() -> bool:
        found = await states()
        return found.get("default") == found.get("root") == "Open"

    await until(both_open, describe="queues default and root are Open (CA02, Q02)")
    await hand.api.delete("queues", "", "default")
    await until(both_open, describe="the default queue is made again")


async def test_a_malformed_job_is_named_and_disturbs_nobody(
    controller: Service, hand: Hand
) -> None:
    bad: dict[str, Any] = job("bad", task("a", 1), plugins={"nope": []})
    await hand.submit(bad)
    await hand.submit(job("good", task("a", 1)))
    await hand.wait_pods(1)
    held = await hand.wait_job("bad", lambda j: "state" in j.get("status", {}))
    assert held["status"]["state"]["reason"] == "InvalidSpec"
    assert "spec.plugins.nope" in held["status"]["state"]["message"]


async def test_a_burst_of_jobs_is_made_at_the_servers_pace(controller: Service, hand: Hand) -> None:
    empty = await hand.api.get("pods", hand.namespace)
    since = empty["metadata"]["resourceVersion"]
    for number in range(4):
        await hand.submit(job(f"burst-{number}", task("a", 50)))
    await hand.wait_pods(200)
    pods = await changes(hand, "pods", since)
    assert pods == {"ADDED": 200}, "no pod is written twice"
    jobs = await changes(hand, "jobs", since)
    assert jobs["ADDED"] == 4
    assert jobs["MODIFIED"] < 4 * 8, "no status for every pod"


async def changes(hand: Hand, plural: str, since: str) -> Counter[str]:
    """Count the changes of objects by their kind until what there is now."""
    missing = {
        item["metadata"]["resourceVersion"] for item in await hand.api.items(plural, hand.namespace)
    }
    found: Counter[str] = Counter()
    async for event in hand.api.follow(plural, hand.namespace, since):
        found[event["type"]] += 1
        missing.discard(event["object"]["metadata"]["resourceVersion"])
        if not missing:
            break
    return found


async def test_a_pod_that_has_succeeded_is_not_made_again_when_its_node_takes_it_away(
    controller: Service, hand: Hand
) -> None:
    await hand.submit(job("sum", task("a", 2)))
    await hand.wait_pods(2)
    await hand.run_all()
    await hand.wait_job("sum", "Running")
    await hand.report("sum-a-0", "Succeeded", 0)
    await hand.wait_job("sum", lambda j: j["status"].get("succeeded") == 1)
    await hand.api.delete("pods", hand.namespace, "sum-a-0", 0)
    await hand.wait_pods(1)
    await hand.report("sum-a-1", "Succeeded", 0)
    done = await hand.wait_job("sum", "Completed")
    assert done["status"]["succeeded"] == 2
    assert list(await hand.pods()) == ["sum-a-1"]


async def test_a_job_says_why_its_group_waits_and_that_its_pods_are_deleted_j34(
    controller: Service, hand: Hand
) -> None:
    hand.admits = False
    await hand.submit(job("waits", task("a", 1)))
    uid = (await hand.job("waits"))["metadata"]["uid"]
    name = f"waits-{uid}"

    async def made() -> bool:
        return bool(await hand.api.items("podgroups", hand.namespace))

    await until(made, deadline_s=20, describe="the group is made")
    refusal = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "NotEnoughResources",
        "message": "queue default is full",
        "transitionID": "1",
    }
    status = {"phase": "Pending", "conditions": [refusal]}
    await hand.api.patch("podgroups", hand.namespace, name, {"status": status})
    status["phase"] = "Inqueue"
    told: dict[str, str] = {}

    async def says(reason: str) -> bool:
        for event in await hand.api.items("events", hand.namespace):
            if event["involvedObject"]["name"] == "waits":
                told[event["reason"]] = event["message"]
        return reason in told

    await until(
        lambda: says("PodGroupPending"), deadline_s=20, describe=lambda: f"why it waits: {told}"
    )
    assert "queue default is full" in told["PodGroupPending"]
    await hand.api.patch("podgroups", hand.namespace, name, {"status": status})
    await hand.wait_pods(1)
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "waits"}
    order = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "abort-waits"},
        "action": "AbortJob",
        "target": {**target, "uid": uid},
    }
    await hand.api.create("commands", order, hand.namespace)
    await until(
        lambda: says("SuccessfulDelete"), deadline_s=20, describe=lambda: f"it is told: {told}"
    )
    assert told["SuccessfulDelete"] == "Deleting 1 pods"


async def test_orders_to_jobs_that_are_not_there_are_dropped_j05(
    controller: Service, hand: Hand
) -> None:
    """Nobody else would delete them, and the next job of that name would obey them."""
    await hand.submit(job("here", task("a", 1)))
    (pod,) = (await hand.wait_pods(1)).values()
    uid = pod["metadata"]["ownerReferences"][0]["uid"]
    targets = {
        "no-such-job": {"name": "gone", "uid": "0"},
        "an-earlier-job": {"name": "here", "uid": "0"},
        "another-kind": {"name": "here", "uid": uid, "apiVersion": "batch/v1"},
    }
    for name, target in targets.items():
        order = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": name},
            "action": "AbortJob",
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **target},
        }
        await hand.api.create("commands", order, hand.namespace)
    left: list[str] = []

    async def only_the_foreign_one() -> bool:
        orders = await hand.api.items("commands", hand.namespace)
        left[:] = [order["metadata"]["name"] for order in orders]
        return left == ["another-kind"]

    await until(only_the_foreign_one, deadline_s=20, describe=lambda: f"left are {left}")
    assert (await hand.wait_job("here", "Pending"))["status"].get("version", 0) == 0
    await hand.api.delete("commands", hand.namespace, "another-kind")
