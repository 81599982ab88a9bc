"""docs/from-volcano.md, line by line: a cluster that Volcano has left, Pumice on it, and back.

The CRDs and objects are in Volcano's form, as its controller and scheduler write them. Pumice's
Deployments have no kubelet here, so `pumice run` works in their place.
"""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from pumice.local.fleet import NodeShape
from shared.api.crdgen import manifest
from shared.api.crds import CRDS
from tests.support import pages
from tests.support.api import Api, connect
from tests.support.goprograms import at_a_terminal
from tests.support.pumice_run import pumice_run
from tests.support.wait import until
from tests.support.world import group, job, pod, task

PAGE = pages.ROOT / "docs" / "from-volcano.md"
CONFIGURATION = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}]
"""
BATCH = "batch.volcano.sh/v1alpha1"
SCHEDULING = "scheduling.volcano.sh/v1beta1"


def volcanos_crds() -> str:
    """Return the CRDs without the columns that are ours."""
    plain = [manifest(msgspec.structs.replace(crd, more_columns=())) for crd in CRDS]
    return yaml.safe_dump_all(plain, sort_keys=False)


def deployment(name: str) -> dict:
    container = {"name": name, "image": "volcanosh/vc:latest"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "volcano-system"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container]},
            },
        },
    }


def webhook() -> dict:
    """Return a webhook that refuses all jobs when Volcano does not answer."""
    name = "volcano-admission-service-jobs-validate"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "validatejob.volcano.sh",
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {
                        "name": "volcano-admission-service",
                        "namespace": "volcano-system",
                        "path": "/jobs/validate",
                    }
                },
                "rules": [
                    {
                        "apiGroups": ["batch.volcano.sh"],
                        "apiVersions": ["v1alpha1"],
                        "operations": ["CREATE"],
                        "resources": ["jobs"],
                    }
                ],
            }
        ],
    }


async def left_by_volcano(api: Api) -> None:
    """Store a queue, a job that runs on two pods, and one that waits, with all that goes along."""
    queue = {"apiVersion": SCHEDULING, "kind": "Queue", "metadata": {"name": "default"}}
    await api.create("queues", {**queue, "spec": {"weight": 1, "reclaimable": True}})
    await api.patch("queues", "", "default", {"status": {"state": "Open"}}, sub="status")
    for name, phase in (("old", "Running"), ("waiting", "Pending")):
        stored = await api.create(
            "jobs", {**job(name, task("work", 2)), "apiVersion": BATCH}, "default"
        )
        owner = {
            "apiVersion": BATCH,
            "kind": "Job",
            "name": name,
            "uid": stored["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        its_group = f"{name}-{owner['uid']}"
        await api.create("podgroups", volcanos_group(its_group, owner, phase), "default")
        if phase == "Running":
            for index in range(2):
                await api.create("pods", volcanos_pod(name, index, its_group, owner), "default")
        status = {
            "state": {"phase": phase, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            "minAvailable": 2,
            "running": 2 if phase == "Running" else 0,
        }
        await api.patch("jobs", "default", name, {"status": status}, sub="status")


def volcanos_group(name: str, owner: dict, phase: str) -> dict:
    body = group(
        name,
        metadata={"ownerReferences": [owner]},
        minMember=2,
        minTaskMember={"work": 2},
        minResources={"cpu": "2", "memory": "2Gi"},
        queue="default",
    )
    return {**body, "status": {"phase": phase}}


def volcanos_pod(name: str, index: int, in_group: str, owner: dict) -> dict:
    about = {
        "volcano.sh/job-name": name,
        "volcano.sh/queue-name": "default",
        "volcano.sh/task-index": str(index),
        "volcano.sh/task-spec": "work",
    }
    labels = {**about, "volcano.sh/job-namespace": "default"}
    annotations = {
        **about,
        "volcano.sh/job-retry-count": "0",
        "volcano.sh/job-version": "0",
        "volcano.sh/template-uid": f"{name}-work",
    }
    return pod(
        f"{name}-work-{index}",
        group=in_group,
        annotations=annotations,
        metadata={"ownerReferences": [owner], "labels": labels},
        **task("work", 1)["template"]["spec"],
        nodeName="node-0",
    )


@pytest.fixture
def shell(programs: Path, tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Return what runs a script as a person at a terminal does, with the pinned kubectl."""
    (tmp_path / "k8s").symlink_to(pages.ROOT / "k8s")

    def run(script: str, *, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return at_a_terminal(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            programs=programs,
            cwd=tmp_path,
            stdin=stdin,
            timeout_s=120,
            PYTHONPATH=str(pages.ROOT),
            KUBECONFIG=str(tmp_path / "plane" / "kubeconfig"),
        )

    return run


async def phase_is(api: Api, name: str, phase: str) -> None:
    async def is_so() -> bool:
        found = await api.get("jobs", "default", name)
        return found["status"]["state"]["phase"] == phase

    await until(is_so, deadline_s=60, describe=f"{name} is {phase}")


async def uids(api: Api, name: str) -> set[str]:
    found = await api.items("pods", "default", labelSelector=f"volcano.sh/job-name={name}")
    return {each["metadata"]["uid"] for each in found}


@pytest.mark.timeout(300)
async def test_there_and_back_with_no_pod_restarted(tmp_path: Path, shell) -> None:
    by_heading: dict[str, list[str]] = {}
    for block in pages.blocks(PAGE):
        by_heading.setdefault(block.heading, []).append(block.text)

    async def follow(heading: str) -> str:
        said = ""
        for script in by_heading[heading]:
            done = await asyncio.to_thread(shell, script)
            assert done.returncode == 0, (script, done.stderr)
            said += done.stdout
        return said

    async with (
        ControlPlane(ControlPlaneOptions(directory=tmp_path / "plane"), parts.require()) as plane,
        connect(plane.kubeconfig) as api,
    ):
        done = await asyncio.to_thread(
            shell, "kubectl apply --server-side --field-manager=helm -f -", stdin=volcanos_crds()
        )
        assert done.returncode == 0, done.stderr
        await plane.add_nodes(NodeShape(count=2))
        await asyncio.to_thread(shell, "kubectl create namespace volcano-system")
        objects = [deployment(f"volcano-{n}") for n in ("scheduler", "controllers", "admission")]
        settings = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
        data = {"volcano-scheduler.conf": CONFIGURATION}
        objects.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": data}
        )
        await left_by_volcano(api)
        done = await asyncio.to_thread(
            shell, "kubectl create -f -", stdin=yaml.safe_dump_all([*objects, webhook()])
        )
        assert done.returncode == 0, done.stderr
        old = await uids(api, "old")
        assert len(old) == 2

        await follow("From Volcano to Pumice")
        assert (tmp_path / "scheduler.conf").read_text() == CONFIGURATION
        words = ("--kubeconfig", str(plane.kubeconfig))
        conf = str(tmp_path / "scheduler.conf")
        async with pumice_run(*words, "--scheduler-conf", conf) as services:
            await services.ready()
            await phase_is(api, "waiting", "Running")
            await api.create("jobs", job("new", task("work", 1)), "default")
            await phase_is(api, "new", "Running")
            said = await follow("What to check")
            assert "WHY" in said
            assert "ALLOCATED" in said
            assert await uids(api, "old") == old
            for index in range(2):
                await api.patch(
                    *("pods", "default", f"old-work-{index}"),
                    {"status": {"phase": "Succeeded"}},
                    sub="status",
                )
            await phase_is(api, "old", "Completed")
            kept = {name: await uids(api, name) for name in ("waiting", "new")}
            await services.stop()

        await follow("Back to Volcano")
        assert {name: await uids(api, name) for name in kept} == kept
        done = await asyncio.to_thread(
            shell,
            "kubectl get validatingwebhookconfiguration,mutatingwebhookconfiguration -o name;"
            "kubectl -n volcano-system get deployment -o jsonpath='{.items[*].spec.replicas}'",
        )
        assert done.stdout == "1 1 1"
