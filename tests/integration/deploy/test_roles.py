"""Each service does its work under exactly the role that k8s/base gives it.

The services run as processes with a token of their ServiceAccount; the scheduler has none and gets
no way to the API server at all. What the API server says in its audit log is the judge.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from pumice.local.control_plane import ControlPlane
from tests.integration.deploy.conftest import log_lines
from tests.support.api import Api, connect
from tests.support.fleet import Fleet, fleet
from tests.support.manifests import BASE, build, named
from tests.support.wait import until
from tests.support.world import job, task

NAMESPACE = "pumice-system"
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


def requests_of(plane: ControlPlane) -> dict[str, list[dict]]:
    """Return the finished requests of each service from the audit log."""
    found = defaultdict(list)
    for line in log_lines(plane).read_text().splitlines():
        entry = json.loads(line)
        user = entry["user"]["username"]
        if entry["stage"] == "ResponseComplete" and user.startswith(
            f"system:serviceaccount:{NAMESPACE}:pumice-"
        ):
            found[user.rpartition("-")[2]].append(entry)
    return found


def granted_to(service: str) -> set[tuple[str, str, str]]:
    """Return what the role of a service allows, as (group, resource, verb)."""
    role = named(build(BASE), "ClusterRole", f"pumice-{service}")
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used_by(entries: list[dict]) -> set[tuple[str, str, str]]:
    used = set()
    for entry in entries:
        if ref := entry.get("objectRef"):
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
            used.add((ref.get("apiGroup", ""), resource, entry["verb"]))
    return used


@pytest.mark.timeout(180)
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
        await api.create("pods", bare_pod(), "default")

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
    requests = requests_of(plane)
    assert set(requests) == set(ACCOUNTS)
    for service, entries in requests.items():
        refused = [e for e in entries if e["responseStatus"]["code"] == 403]
        assert not refused, (service, [(e["verb"], e["requestURI"]) for e in refused])
        beyond = {use for use in used_by(entries) if use not in granted_to(service)}
        assert not beyond, (service, beyond)
    watched = {(group, resource) for group, resource, _ in granted_to("cache")}
    assert {(group, resource) for group, resource, _ in used_by(requests["cache"])} == watched


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


def bare_pod() -> dict:
    template = task("bare", 1)["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare"},
        "spec": {**template["spec"], "schedulerName": "volcano"},
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
        ("controller", "", "secrets", "patch"),
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
