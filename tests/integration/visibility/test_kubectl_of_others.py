"""What kubectl does for those who do not use Pumice, in each state of visibility."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pumice.local.control_plane import ControlPlane
from pumice.local.ports import free_port
from services.visibility.settings import VisibilitySettings
from shared.kube.config import connect as connect_kube
from tests.integration.visibility.conftest import available, manifests
from tests.support import roles
from tests.support.answers import FixedAnswers
from tests.support.api import connect
from tests.support.visibility import serving_api
from tests.support.wait import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

LIST = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"of-others-{number}"},
                "data": {"key": "value"},
            }
            for number in range(2)
        ],
    }
)
UNKNOWN = json.dumps({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}})
"""A kind that is not installed: kubectl reads the merged OpenAPI before it says so."""
Kubectl = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def kubectl(control_plane: ControlPlane, programs: Path, tmp_path: Path) -> Kubectl:
    """kubectl without anything that it has cached before: returns exit code and all output."""
    number = 0

    async def run(*words: str, stdin: str = "") -> tuple[int, str]:
        nonlocal number
        number += 1
        process = await asyncio.create_subprocess_exec(
            str(programs / "kubectl"),
            f"--kubeconfig={control_plane.kubeconfig}",
            f"--cache-dir={tmp_path / str(number)}",
            *words,
            env={**os.environ, "HOME": str(tmp_path)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(60):
            output, _ = await process.communicate(stdin.encode())
        return process.returncode or 0, output.decode()

    return run


async def works(kubectl: Kubectl) -> None:
    """Do what a person does who has never heard of Pumice."""
    for words, stdin, told in (
        (("apply", "-f", "-"), LIST, "configmap/of-others-1 created"),
        (("apply", "-f", "-"), LIST, "configmap/of-others-1 unchanged"),
        (("explain", "pod.spec.containers"), "", "workingDir"),
        (("explain", "--recursive", "deployments.spec.strategy"), "", "rollingUpdate"),
        (("get", "configmaps,services", "-o", "wide"), "", "of-others-0"),
        (("delete", "-f", "-"), LIST, "deleted"),
    ):
        code, output = await kubectl(*words, stdin=stdin)
        assert (code, told in output) == (0, True), f"{words}: {code} {output}"
    code, output = await kubectl("apply", "-f", "-", stdin=UNKNOWN)
    assert code != 0
    assert 'no matches for kind "Thing"' in output


async def test_kubectl_works_for_others_in_each_state_of_visibility(
    control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    port = free_port()
    settings = VisibilitySettings(port=port, bind_address="127.0.0.1", service_port=port)
    account = str(roles.account(control_plane.kubeconfig, "visibility"))
    await works(kubectl)
    async with connect(control_plane.kubeconfig) as api, manifests(api, port):
        await available(api, "False")
        await works(kubectl)
        kube = await connect_kube(account, user_agent="pumice-visibility")
        async with serving_api(settings, kube, FixedAnswers()):
            await available(api, "True")
            await works(kubectl)

            async def is_explained() -> bool:
                code, output = await kubectl("explain", "pendingjobs.position")
                return code == 0 and "Place in its queue's line" in output

            await until(is_explained, deadline_s=60, describe="ours is explained, too")
            await works(kubectl)
        await available(api, "False")
        await works(kubectl)
    await works(kubectl)
