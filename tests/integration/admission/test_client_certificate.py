"""kube-apiserver shows its client certificate to admission, as docs/deployment.md describes."""

from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.integration.admission.conftest import DEFAULT, opened
from tests.support import world
from tests.support.api import connect
from tests.support.certificates import Authority
from tests.support.stack import real_plane

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(150)]

API = "apiserver.config.k8s.io/v1"


def configuration(directory: Path, authority: Authority) -> str:
    """Write what makes kube-apiserver show a certificate to all webhooks; return the flag."""
    shown = authority.issue("kube-apiserver")
    user = {"client-certificate": str(shown.cert), "client-key": str(shown.key)}
    kubeconfig = directory / "webhooks.kubeconfig"
    everybody = {"name": "*", "user": user}
    head = {"apiVersion": "v1", "kind": "Config"}
    kubeconfig.write_text(yaml.safe_dump({**head, "users": [everybody]}))
    webhooks = {
        "apiVersion": API,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    plugins = [
        {"name": name, "configuration": webhooks}
        for name in ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
    ]
    file = directory / "admission.yaml"
    whole = {"apiVersion": API, "kind": "AdmissionConfiguration", "plugins": plugins}
    file.write_text(yaml.safe_dump(whole))
    return f"--admission-control-config-file={file}"


async def test_admission_answers_the_api_server_and_nobody_else(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    flag = configuration(tmp_path, authority)
    async with real_plane(tmp_path / "plane", apiserver_flags=(flag,)) as plane:
        async with connect(plane.kubeconfig) as api:
            await api.create("queues", DEFAULT)
        async with opened(plane, tmp_path) as door:
            file, names = str(authority.ca_file), "kube-apiserver"
            await door.start(client_ca_file=file, client_names=names)
            bad = world.job("j", world.task("w", 1), plugins={"nope": []})
            await door.refuses("jobs", bad, "default", words="unable to find job plugin: nope")
            async with aiohttp.ClientSession() as session:
                with pytest.raises(aiohttp.ClientError):
                    await session.post(
                        f"https://127.0.0.1:{door.port}/jobs/validate", json={}, ssl=False
                    )
