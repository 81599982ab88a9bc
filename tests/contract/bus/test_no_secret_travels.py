"""What users keep secret stays off the bus: planted on a real run, looked for in every stream.

The streams are read from their first message, and the files of the server are searched as well.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.stack import LocalStack, StackOptions
from shared.bus.values import CaughtUp, FromSequence
from shared.contracts.codec import unpack
from shared.contracts.streams import all_streams, streams
from tests.support.api import Api, connect
from tests.support.nats_servers import admin_bus
from tests.support.wait import until

PLANTED = "planted-secret"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
PUBLIC = KEY.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
RUNS = {"Running", "Completed"}
WORDS = (PLANTED.encode(), PEM.splitlines()[5].encode())
"""What no message may hold: the mark of all planted texts, and a line of the private key."""


def template(where: str) -> dict:
    """Return a pod template that holds a secret wherever a user may put one."""
    return {
        "metadata": {"annotations": {APPLIED: f"{PLANTED}-{where}-template-annotation"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "env": [{"name": "PASSWORD", "value": f"{PLANTED}-{where}-env"}],
                    "command": ["sh", "-c", f"login --password {PLANTED}-{where}-command"],
                    "args": [f"--token={PLANTED}-{where}-args"],
                }
            ],
        },
    }


def job_spec(where: str) -> dict:
    return {
        "minAvailable": 2,
        "plugins": {
            "ssh": [f"--ssh-private-key={PEM}", f"--ssh-public-key={PUBLIC}"],
            "env": [],
        },
        "tasks": [{"name": "main", "replicas": 2, "template": template(where)}],
    }


def planted() -> list[tuple[str, dict]]:
    batch, flow = "batch.volcano.sh/v1alpha1", "flow.volcano.sh/v1alpha1"

    def thing(api_version: str, kind: str, name: str, **rest: Any) -> tuple[str, dict]:
        meta = {"name": name, "annotations": {APPLIED: f"{PLANTED}-annotation"}}
        body = {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest}
        return f"{kind.lower()}s", body

    steps = {"jobRetainPolicy": "retain", "flows": [{"name": "step"}]}
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job_spec("cron")}}
    return [
        thing("v1", "Secret", "keys", stringData={"key": f"{PLANTED}-secret-data"}),
        thing("v1", "ConfigMap", "conf", data={"key": f"{PLANTED}-config-data"}),
        thing(flow, "JobTemplate", "step", spec=job_spec("template")),
        thing(flow, "JobFlow", "flow", spec=steps),
        thing(batch, "CronJob", "cron", spec=cron),
        thing(batch, "Job", "job", spec=job_spec("job")),
    ]


@pytest_asyncio.fixture
async def stack(tmp_path: Path) -> AsyncIterator[LocalStack]:
    """A whole local cluster on the embedded API server."""
    options = StackOptions(
        plane=ControlPlaneOptions(directory=tmp_path / "plane", api="embedded"),
        services=("cache", "scheduler", "binder", "controller"),
    )
    async with LocalStack(options, parts.require(["nats-server"])) as running:
        yield running


async def phase(api: Api, name: str) -> str:
    job = await api.get("jobs", "default", name)
    return job.get("status", {}).get("state", {}).get("phase", "")


async def everything_on_the_bus(stack: LocalStack) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    async with admin_bus(stack.plane.nats) as bus:
        for spec in all_streams(streams("local")):
            if spec.name.endswith("COMMAND"):  # a work queue takes no second reader
                for pattern in range(4):
                    subject = f"pumice.local.command.p{pattern}"
                    found += [(m.subject, m.payload) async for m in bus.scan(spec.name, subject)]
                continue
            items = bus.follow(spec.name, list(spec.subjects), start=FromSequence(1))
            async for item in items:
                if isinstance(item, list):
                    found += [(m.subject, unpack(m.payload)) for m in item]
                if isinstance(item, CaughtUp):
                    break
            await items.aclose()
    return found


def in_files(directory: Path, word: bytes) -> list[str]:
    return [str(p) for p in directory.rglob("*") if p.is_file() and word in p.read_bytes()]


@pytest.mark.timeout(120)
async def test_what_users_keep_secret_is_nowhere_on_the_bus(stack: LocalStack) -> None:
    async with connect(stack.plane.kubeconfig) as api:
        for plural, body in planted():
            await api.create(plural, body, "default")

        async def run() -> bool:
            return {await phase(api, name) for name in ("job", "flow-step")} <= RUNS

        await until(run, deadline_s=60, describe="both jobs run")
        pod = json.dumps(await api.items("pods", "default"))
        messages = await everything_on_the_bus(stack)
    assert f"{PLANTED}-job-env" in pod, "the pods have what the user wrote"
    subjects = {subject for subject, _ in messages}
    for kind in ("jobs", "jobflows", "jobtemplates", "cronjobs", "pods", "podgroups"):
        assert any(f".state.{kind}.default." in subject for subject in subjects), kind
    for word in WORDS:
        assert [(s, p[:300]) for s, p in messages if word in p] == []
        assert in_files(stack.plane.nats.directory, word) == []
