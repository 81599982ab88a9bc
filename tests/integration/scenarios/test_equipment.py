"""What a job's pods are given: by plugins (JP1 to JP9), by volumes (J30), by the job (J31, J32)."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.integration.scenarios.course import BEGIN, watched
from tests.integration.scenarios.playing import Playing, Scenario, Scenarios
from tests.integration.scenarios.scene import Object, Scene, on, task

pytestmark = pytest.mark.asyncio(loop_scope="session")

scenarios = Scenarios()


def env(pod: Object) -> dict[str, Any]:
    """Return the environment of a pod's first container; references by their key."""
    return {
        entry["name"]: entry.get("value")
        or entry.get("valueFrom", {}).get("configMapKeyRef", {}).get("key")
        for entry in pod["spec"]["containers"][0].get("env", [])
    }


def mounts(pod: Object) -> set[str]:
    """Return where a pod's first container finds volumes."""
    return {mount["mountPath"] for mount in pod["spec"]["containers"][0].get("volumeMounts", [])}


Check = Callable[[Scene, dict[str, Object]], Awaitable[None]]


def equipped(plugins: dict[str, list[str]], tasks: dict[str, int], check: Check) -> Scenario:
    """Return the scenario of a job with plugins whose pods are looked at."""

    async def scenario(scene: Scene) -> None:
        made = [task(name, replicas) for name, replicas in tasks.items()]
        for one in made:
            one["template"]["spec"]["initContainers"] = [{"name": "first", "image": "busybox"}]
        pods = await scene.running("j", *made, plugins=plugins)
        await check(scene, pods)
        marks = (await scene.job("j"))["status"].get("controlledResources", {})
        assert {f"plugin-{name}" for name in plugins} - {"plugin-hcclrank"} <= set(marks)

    return scenario


async def has_index(_: Scene, pods: dict[str, Object]) -> None:
    for n in range(2):
        said = env(pods[f"j-a-{n}"])
        assert (said["VK_TASK_INDEX"], said["VC_TASK_INDEX"]) == (str(n), str(n))


async def has_service(scene: Scene, pods: dict[str, Object]) -> None:
    service = await scene.api.get("services", scene.namespace, "j")
    assert service["spec"]["clusterIP"] == "None"
    hosts = await scene.api.get("configmaps", scene.namespace, "j-svc")
    assert hosts["data"]["a.host"] == "j-a-0.j\nj-a-1.j"
    assert hosts["data"]["VC_A_HOSTS"] == "j-a-0.j,j-a-1.j"
    assert hosts["data"]["VC_A_NUM"] == "2"
    pod = pods["j-a-1"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("j-a-1", "j")
    assert "/etc/volcano" in mounts(pod)
    assert env(pod)["VC_A_HOSTS"] == "VC_A_HOSTS"
    policy = await scene.api.get("networkpolicies", scene.namespace, "j")
    assert policy["spec"]["policyTypes"] == ["Ingress"]


async def has_no_policy(scene: Scene, _: dict[str, Object]) -> None:
    assert await scene.api.items("networkpolicies", scene.namespace) == []
    service = await scene.api.get("services", scene.namespace, "j")
    assert service["spec"]["publishNotReadyAddresses"] is True


async def has_no_hosts_in_env(scene: Scene, pods: dict[str, Object]) -> None:
    hosts = await scene.api.get("configmaps", scene.namespace, "j-svc")
    assert hosts["data"]["VC_A_NUM"] == "2"
    assert not {"VC_A_HOSTS", "VC_A_NUM"} & env(pods["j-a-0"]).keys()
    assert "/etc/volcano" in mounts(pods["j-a-0"])


async def has_all(scene: Scene, pods: dict[str, Object]) -> None:
    """See that containers and init containers alike have the environment of env and svc."""
    await has_service(scene, pods)
    for pod in pods.values():
        spec = pod["spec"]
        assert {"j-svc", "j-ssh"} <= {volume["name"] for volume in spec["volumes"]}
        for container in (*spec["containers"], *spec["initContainers"]):
            named = {entry["name"] for entry in container["env"]}
            assert {"VK_TASK_INDEX", "VC_TASK_INDEX", "VC_A_HOSTS", "VC_A_NUM"} <= named


async def has_keys(scene: Scene, pods: dict[str, Object]) -> None:
    secret = await scene.api.get("secrets", scene.namespace, "j-ssh")
    assert set(secret["data"]) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
    assert any(path.startswith("/root/.ssh") for path in mounts(pods["j-a-0"]))


async def has_tensorflow(_: Scene, pods: dict[str, Object]) -> None:
    said = json.loads(env(pods["j-worker-1"])["TF_CONFIG"])
    assert said["task"] == {"type": "worker", "index": 1}
    assert said["cluster"] == {
        "ps": ["j-ps-0.j:2222"],
        "worker": ["j-worker-0.j:2222", "j-worker-1.j:2222"],
    }


async def has_pytorch(_: Scene, pods: dict[str, Object]) -> None:
    master, worker = env(pods["j-master-0"]), env(pods["j-worker-1"])
    assert master["MASTER_ADDR"] == worker["MASTER_ADDR"] == "j-master-0.j"
    assert (master["RANK"], worker["RANK"]) == ("0", "2")
    assert {master["WORLD_SIZE"], worker["WORLD_SIZE"]} == {"3"}
    assert master["MASTER_PORT"] == "23456"


async def has_mpi(_: Scene, pods: dict[str, Object]) -> None:
    assert env(pods["j-master-0"])["MPI_HOST"] == "j-worker-0.j,j-worker-1.j"
    assert "MPI_HOST" not in env(pods["j-worker-0"])


async def has_ray(scene: Scene, pods: dict[str, Object]) -> None:
    head = pods["j-head-0"]["spec"]["containers"][0]
    assert any("ray start --head" in word for word in head["command"])
    worker = pods["j-worker-0"]["spec"]["containers"][0]
    assert any("ray start" in word and "--address=" in word for word in worker["command"])
    await scene.api.get("services", scene.namespace, "j-head-svc")


async def has_ranks(_: Scene, pods: dict[str, Object]) -> None:
    ranks = {name: pod["metadata"]["annotations"]["hccl/rankIndex"] for name, pod in pods.items()}
    assert ranks == {"j-master-0": "0", "j-worker-0": "1", "j-worker-1": "2"}


def of(first: str) -> dict[str, int]:
    """Return one task of one pod and two workers."""
    return {first: 1, "worker": 2}


TWO = ["--worker=worker"]
RAY = ["--head=head", *TWO, "--headContainer=main", "--workerContainer=main"]
TABLE: dict[str, tuple[dict[str, list[str]], dict[str, int], Check]] = {
    "env": ({"env": []}, {"a": 2}, has_index),
    "svc": ({"svc": []}, {"a": 2}, has_service),
    "svc without a network policy": (
        {"svc": ["--disable-network-policy=true", "--publish-not-ready-addresses=true"]},
        {"a": 1},
        has_no_policy,
    ),
    "svc without hosts in the environment": (
        {"svc": ["--inject-hosts-env=false"]},
        {"a": 2},
        has_no_hosts_in_env,
    ),
    "ssh": ({"ssh": []}, {"a": 1}, has_keys),
    "ssh with a word of early days": ({"ssh": ["--no-root"]}, {"a": 1}, has_keys),
    "tensorflow": ({"svc": [], "tensorflow": ["--ps=ps", *TWO]}, of("ps"), has_tensorflow),
    "pytorch": ({"svc": [], "pytorch": ["--master=master", *TWO]}, of("master"), has_pytorch),
    "mpi": ({"svc": [], "ssh": [], "mpi": ["--master=master", *TWO]}, of("master"), has_mpi),
    "ray": ({"svc": [], "ray": RAY}, of("head"), has_ray),
    "hcclrank": ({"hcclrank": ["--master=master", *TWO]}, of("master"), has_ranks),
    "mpi brings svc and ssh": (
        {"mpi": ["--master=master", *TWO, "--port=22"]},
        of("master"),
        has_mpi,
    ),
    "tensorflow brings svc": ({"tensorflow": ["--ps=ps", *TWO]}, of("ps"), has_tensorflow),
    "all that go together": ({"env": [], "svc": [], "ssh": ["--no-root"]}, {"a": 2}, has_all),
}
for plugin, (plugins, tasks, check) in TABLE.items():
    scenarios.add(f"plugin {plugin}", equipped(plugins, tasks, check))


def framework(plugins: dict[str, list[str]], first: str, *, ends: str, early: bool) -> Scenario:
    """Return the scenario of a distributed job that is over when one of its tasks is.

    With `early` the task that ends is the one that is not waited for in full.
    """

    async def scenario(scene: Scene) -> None:
        policies = [on("TaskCompleted", "CompleteJob")]
        spec: Object = {"plugins": plugins} | ({"policies": policies} if early else {})
        worker = task("worker", 2, **({} if early else {"policies": policies}))
        async with watched(scene, "j") as course:
            await scene.submit("j", task(first, 1), worker, min_available=1 if early else 3, **spec)
            await scene.pods(3, phase="Running")
            for pod in await scene.pods(task=ends):
                await scene.end(pod)
            await course.was(*BEGIN, "Completing", "Completed")
        assert {pod.split("-")[1] for pod in await scene.pods()} == {ends}

    return scenario


SVC: dict[str, list[str]] = {"svc": [], "env": []}
FRAMEWORKS: dict[str, tuple[dict[str, list[str]], str, str]] = {
    "mpi by hand": ({**SVC, "ssh": []}, "master", "master"),
    "mpi": ({"mpi": ["--master=master", *TWO]}, "master", "master"),
    "pytorch": ({"pytorch": ["--master=master", *TWO]}, "master", "worker"),
    "tensorflow by hand": (SVC, "ps", "worker"),
    "tensorflow": ({"tensorflow": ["--ps=ps", *TWO]}, "ps", "worker"),
    "ray": ({"ray": RAY, "svc": []}, "head", "worker"),
}
for framework_name, (given, first, ends) in FRAMEWORKS.items():
    for early in (True, False) if ends == "worker" else (True,):
        scenarios.add(
            f"{framework_name} is over with its {ends}, as {'the job' if early else 'it'} says",
            framework(given, first, ends=ends, early=early),
        )


@scenarios
async def the_list_of_hosts_grows_with_the_job(scene: Scene) -> None:
    await scene.running("j", task("a", 1), plugins={"svc": []})
    await scene.scale("j", a=3)

    async def rewritten() -> bool:
        hosts = await scene.api.get("configmaps", scene.namespace, "j-svc")
        return bool(hosts["data"]["VC_A_NUM"] == "3")

    await scene.wait(rewritten, "three hosts")


@scenarios
async def a_plugin_that_there_is_not_holds_the_job_and_is_named(scene: Scene) -> None:
    await scene.refused_or_held("j", task("a", 1), plugins={"nonesuch": []}, naming="nonesuch")


@scenarios
async def pods_carry_the_marks_of_their_job(scene: Scene) -> None:
    queue = await scene.queue("mine")
    (pod,) = (await scene.running("j", task("a", 1), queue=queue)).values()
    notes, labels = pod["metadata"]["annotations"], pod["metadata"]["labels"]
    group = (await scene.group("j"))["metadata"]["name"]
    assert notes["scheduling.k8s.io/group-name"] == group
    for marks in (notes, labels):
        assert marks["volcano.sh/job-name"] == "j"
        assert marks["volcano.sh/task-spec"] == "a"
        assert marks["volcano.sh/queue-name"] == queue
        assert marks["volcano.sh/task-index"] == "0"
    assert labels["volcano.sh/job-namespace"] == scene.namespace
    assert notes["volcano.sh/job-version"] == "0"
    assert notes["volcano.sh/job-retry-count"] == "0"
    assert notes["volcano.sh/template-uid"] == "j-a"
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "j", True)


@scenarios
async def a_group_says_what_the_gang_needs(scene: Scene) -> None:
    await scene.running("j", task("a", 2, cpu="200m"), task("b", 1))
    spec = (await scene.group("j"))["spec"]
    assert spec["minMember"] == 3
    assert spec["minTaskMember"] == {"a": 2, "b": 1}
    assert spec["minResources"]["cpu"] == "500m"
    assert spec["queue"] == "default"


@scenarios
async def a_volume_without_a_name_gets_a_claim(scene: Scene) -> None:
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [{"mountPath": "/data", "volumeClaim": size}]
    await scene.submit("j", task("a", 1), volumes=volumes)

    async def claimed() -> Object | None:
        path = f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims"
        items = (await scene.api.request("GET", path))["items"]
        return items[0] if items else None

    claim = await scene.wait(claimed, "a claim")
    assert claim["metadata"]["name"].startswith("j-pvc-")
    assert claim["metadata"]["ownerReferences"][0]["name"] == "j"
    name, job = claim["metadata"]["name"], await scene.job("j")
    assert job["spec"]["volumes"][0]["volumeClaimName"] == name
    (pod,) = (await scene.pods(1)).values()
    assert "/data" in mounts(pod)


async def claim_for_one_pod(scene: Scene, name: str) -> str:
    """Make a claim with the access mode ReadWriteOncePod and its volume; return its path."""
    modes, size = ["ReadWriteOncePod"], {"storage": "1Gi"}
    volume = {
        "metadata": {"name": f"{scene.namespace}-{name}"},
        "spec": {
            "accessModes": modes,
            "capacity": size,
            "csi": {"driver": "example.com", "volumeHandle": scene.namespace},
            "claimRef": {"namespace": scene.namespace, "name": name},
        },
    }
    await scene.api.request("POST", "/api/v1/persistentvolumes", volume)
    claim = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": size},
            "storageClassName": "",
            "volumeName": f"{scene.namespace}-{name}",
        },
    }
    path = f"/api/v1/namespaces/{scene.namespace}/persistentvolumeclaims"
    await scene.api.request("POST", path, claim)
    return f"{path}/{name}"


@scenarios
async def a_claim_for_one_pod_is_used_by_one_pod_at_a_time(scene: Scene) -> None:
    path = await claim_for_one_pod(scene, "data")

    async def bound() -> bool:
        return (await scene.api.request("GET", path))["status"].get("phase") == "Bound"

    await scene.wait(bound, "the claim has its volume")
    volumes = [{"mountPath": "/data", "volumeClaimName": "data"}]
    await scene.submit("j", task("a", 2, minAvailable=1), min_available=1, volumes=volumes)
    await scene.phase("j", "Running", running=1, pending=1)
    (first,) = await scene.pods(1, phase="Running")

    async def told() -> bool:
        waiting = (await scene.pods(1, phase="Pending")).values()
        return any(
            "ReadWriteOncePod" in condition.get("message", "")
            for pod in waiting
            for condition in pod["status"].get("conditions", [])
        )

    await scene.wait(told, "the other pod says what it waits for")
    await scene.end(first)
    await scene.phase("j", "Running", running=1, succeeded=1)
    await scene.api.request("DELETE", f"/api/v1/persistentvolumes/{scene.namespace}-data")


@scenarios
async def a_missing_claim_holds_the_job_until_it_is_there(scene: Scene) -> None:
    volumes = [{"mountPath": "/data", "volumeClaimName": "later"}]
    await scene.submit("j", task("a", 1), volumes=volumes)
    await scene.event("PVCError", about="j", text="later")
    assert await scene.pods() == {}


@scenarios
async def parts_of_a_task_are_numbered(scene: Scene) -> None:
    policy = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    pods = await scene.running("j", task("a", 4, partitionPolicy=policy), min_available=2)
    label = "volcano.sh/partition-id"
    numbers = {name: pod["metadata"]["labels"][label] for name, pod in pods.items()}
    assert numbers == {"j-a-0": "0", "j-a-1": "0", "j-a-2": "1", "j-a-3": "1"}
    (group,) = (await scene.group("j"))["spec"]["subGroupPolicy"]
    assert (group["name"], group["subGroupSize"], group["minSubGroups"]) == ("a", 2, 1)


@scenarios
async def a_priority_class_goes_with_the_pods(scene: Scene) -> None:
    high = await scene.priority("high", 77)
    (pod,) = (await scene.running("j", task("a", 1), priorityClassName=high)).values()
    assert pod["spec"]["priorityClassName"] == high
    assert pod["spec"]["priority"] == 77
    assert (await scene.group("j"))["spec"]["priorityClassName"] == high


@scenarios.mark()
async def test_equipment(playing: Playing, scenario: Scenario) -> None:
    await playing.end_of(scenario)
