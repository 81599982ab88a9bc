"""The aggregated API of visibility in the process of a test, over answers that the test gives."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from pumice.local.ports import free_port
from services.visibility.app import serving
from services.visibility.settings import VisibilitySettings
from shared.kube.client import Kube
from shared.kube.config import connect as connect_kube
from shared.runtime.service import Context
from tests.support.answers import FixedAnswers
from tests.support.certificates import Authority
from tests.support.env import context_of_a_test


@asynccontextmanager
async def serving_api(
    settings: VisibilitySettings, kube: Kube, answers: FixedAnswers
) -> AsyncIterator[Context]:
    """Serve the API until the block ends; `kube` is closed then."""
    context = context_of_a_test("visibility")
    parts = await serving(settings, context, kube, answers, answers)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(part.run(), name=part.name) for part in parts]
        async with asyncio.timeout(60):
            await context.readiness.wait()
        yield context
        for task in running:
            task.cancel()


class FrontProxy:
    """Calls the API as the API server does, for users that it has checked."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.port = port
        self.tls = tls

    @asynccontextmanager
    async def session(self, user: str) -> AsyncIterator[aiohttp.ClientSession]:
        """Open a session in which a user asks who may do everything."""
        headers = {"X-Remote-User": user, "X-Remote-Group": "system:masters"}
        connector = aiohttp.TCPConnector(ssl=self.tls, limit=0)
        base = f"https://127.0.0.1:{self.port}"
        async with aiohttp.ClientSession(base, headers=headers, connector=connector) as session:
            yield session


@asynccontextmanager
async def front_proxy(directory: Path, answers: FixedAnswers) -> AsyncIterator[FrontProxy]:
    """Serve the API without a cluster, to a caller with the certificate of the API server."""
    authority, port = Authority(directory), free_port()
    settings = VisibilitySettings(
        port=port,
        bind_address="127.0.0.1",
        register=False,
        requestheader_client_ca_file=str(authority.ca_file),
    )
    config: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (directory / "kubeconfig").write_text(json.dumps(config))
    kube = await connect_kube(str(directory / "kubeconfig"), user_agent="pumice-visibility")
    shown = authority.issue("front-proxy")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(shown.cert, shown.key)
    async with serving_api(settings, kube, answers):
        yield FrontProxy(port, tls)
