"""Each service does its work under exactly the role that k8s/base gives it.

The services run as processes with a token of their ServiceAccount, as in a cluster; the scheduler
has none and gets no way to the API server at all. Whether a rule is one too many is judged over the
whole suite, whose services all have these roles (`tools.roles`).
"""

from pathlib import Path

import pytest
import yaml

from pumice.local.control_plane import ControlPlane
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, fleet
from tests.support.manifests import ROOT
from tests.support.wait import until
from tests.support.world import job, pod, queue, task

NAMESPACE = "pumice-system"
QUEUES = "scheduling.volcano.sh/v1beta1"
ACCOUNTS = ("cache", "binder", "controller")
SHORT = {"pumice.dev/run-seconds": "0.2"}
FAILS = {"pumice.dev/run-seconds": "0.2", "pumice.dev/exit-code": "3"}


async def kubeconfig_of(api: Api, plane: ControlPlane, service: str, directory: Path) -> Path:
    """Write a kubeconfig with a token of the service's account, as a pod of it would have."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/pumice-{service}/token"
    answer = await api.request("POST", path, {"spec": {"expirationSeconds": 3600}})
    document = yaml.safe_load(plane.kubeconfig.read_text())
    document["users"] = [
        {"name": document["users"][0]["name"], "user": {"token": answer["status"]["token"]}}
    ]
    target = directory / f"{service}.kubeconfig"
    target.write_text(yaml.safe_dump(document))
    target.chmod(0o600)
    return target


async def start_all(running: Fleet, api: Api, plane: ControlPlane, directory: Path) -> None:
    for service in ACCOUNTS:
        config = await kubeconfig_of(api, plane, service, directory)
        await running.start(service, wait=False, kubeconfig=str(config))
    nowhere = str(directory / "there-is-no-such-file")
    await running.start("scheduler", kubeconfig=nowhere)


@pytest.mark.timeout(240)
async def test_a_job_runs_to_its_end_with_every_service_under_its_role(
    guarded_plane: ControlPlane, tmp_path: Path
) -> None:
    plane = guarded_plane
    async with connect(plane.kubeconfig) as api, fleet(plane, tmp_path) as running:
        await start_all(running, api, plane, tmp_path)
        good = job(
            "good",
            task("ps", 1, annotations=SHORT),
            task("worker", 2, annotations=SHORT),
            plugins={"env": [], "svc": [], "ssh": []},
            policies=[{"event": "PodEvicted", "action": "RestartJob"}],
        )
        bad = job(
            "bad",
            task("worker", 2, annotations=FAILS),
            maxRetry=2,
            policies=[{"event": "PodFailed", "action": "RestartJob"}],
        )
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        volumes = [{"mountPath": "/data", "volumeClaim": claim}]
        tight = job("tight", task("worker", 1, cpu="1000", annotations=SHORT), volumes=volumes)
        aborted = job("aborted", task("worker", 2))
        for each in (good, bad, tight, aborted):
            await api.create("jobs", each, "default")
        await api.create(
            "pods", pod("bare", cpu="1", tolerations=[{"operator": "Exists"}]), "default"
        )
        await everything_else(api)

        async def phases() -> dict[str, str]:
            jobs = await api.items("jobs", "default")
            return {
                j["metadata"]["name"]: j.get("status", {}).get("state", {}).get("phase", "")
                for j in jobs
            }

        async def reached(**wanted: str) -> bool:
            seen = await phases()
            return all(seen[name] == phase for name, phase in wanted.items())

        await until(
            lambda: reached(good="Completed", bad="Failed", aborted="Running"),
            deadline_s=60,
            describe=running.logs,
        )
        await api.create("commands", await abort(api, "aborted"), "default")
        await until(lambda: reached(aborted="Aborted"), deadline_s=30, describe=running.logs)

        async def bare_runs() -> bool:
            pod = await api.get("pods", "default", "bare")
            return pod["status"]["phase"] == "Running"

        await until(bare_runs, deadline_s=30, describe=running.logs)

        async def commands_are_done() -> bool:
            return not await api.items("commands", "default")

        await until(commands_are_done, deadline_s=20, describe=running.logs)
        await until(lambda: gone(api, "brief"), deadline_s=60, describe=running.logs)
        assert "forbidden" not in running.logs(lines=100_000)


async def gone(api: Api, name: str) -> bool:
    """Tell whether a job is no more: its time after its end is up."""
    return name not in {job["metadata"]["name"] for job in await api.items("jobs", "default")}


async def everything_else(api: Api) -> None:
    """Have a CronJob, a flow, a network, a queue below the root, and a job whose time runs out."""
    for number, node in enumerate(await api.items("nodes")):
        labels = {"example.com/spine": "s", "example.com/leaf": f"leaf-{number % 2}"}
        await api.patch("nodes", "", node["metadata"]["name"], {"metadata": {"labels": labels}})
    (network,) = yaml.safe_load_all((ROOT / "examples" / "hypernodes.yaml").read_text())
    await api.create("configmaps", network, NAMESPACE)
    await api.create("queues", queue("below", weight=1))
    spec = job("x", task("a", 1, annotations=SHORT))["spec"]
    cron = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "each-minute"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": spec}},
    }
    await api.create("cronjobs", cron, "default")
    flows = {"apiVersion": "flow.volcano.sh/v1alpha1"}
    template = {**flows, "kind": "JobTemplate", "metadata": {"name": "t"}, "spec": spec}
    await api.create("jobtemplates", template, "default")
    flow = {"flows": [{"name": "t"}], "jobRetainPolicy": "delete"}
    body = {**flows, "kind": "JobFlow", "metadata": {"name": "f"}, "spec": flow}
    await api.create("jobflows", body, "default")
    foreign = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "foreign"},
        "action": "CloseQueue",
        "target": {"kind": "Queue", "apiVersion": QUEUES, "name": "below"},
    }
    await api.create("commands", foreign, "default")
    brief = job("brief", task("a", 1, annotations=SHORT), ttlSecondsAfterFinished=1)
    await api.create("jobs", brief, "default")


async def abort(api: Api, name: str) -> dict:
    target = await api.get("jobs", "default", name)
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": f"abort-{name}"},
        "action": "AbortJob",
        "target": {
            "apiVersion": target["apiVersion"],
            "kind": "Job",
            "name": name,
            "uid": target["metadata"]["uid"],
            "controller": True,
        },
    }


async def test_a_service_can_do_nothing_that_is_anothers(guarded_plane: ControlPlane) -> None:
    """One refusal per border: the cache only reads, the binder binds, no one lists secrets."""
    asked = [
        ("cache", "", "pods", "delete"),
        ("cache", "scheduling.volcano.sh", "queues", "patch"),
        ("binder", "", "pods", "create"),
        ("binder", "batch.volcano.sh", "jobs/status", "patch"),
        ("controller", "", "pods/binding", "create"),
        ("controller", "", "nodes", "list"),
        ("scheduler", "", "pods", "list"),
        *((service, "", "secrets", "list") for service in (*ACCOUNTS, "scheduler")),
        *((service, "", "secrets", "get") for service in ("cache", "binder", "scheduler")),
        *(("controller", "", "secrets", verb) for verb in ("get", "watch", "patch", "delete")),
    ]
    async with connect(guarded_plane.kubeconfig) as api:
        allowed = [question for question in asked if await may(api, *question)]
        control = await may(api, "binder", "", "pods/binding", "create")
    assert not allowed
    assert control, "the question itself is asked in the right form"


async def may(api: Api, service: str, group: str, resource: str, verb: str) -> bool:
    """Ask the API server whether a service's account may do something in any namespace."""
    name, _, subresource = resource.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:pumice-{service}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "group": group,
                "resource": name,
                "subresource": subresource,
                "verb": verb,
            },
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return (await api.request("POST", path, review))["status"]["allowed"]
