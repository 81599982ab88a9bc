"""Installs an operator on a control plane and runs its program beside it.

The API server finds its webhooks by a Service that is another name of the loopback, so that the
certificate that the operator makes for its Service holds.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from pumice.local import readiness
from pumice.local.authority import Authority, pair
from pumice.local.control_plane import ControlPlane
from pumice.local.ports import LOOPBACK, free_port
from pumice.local.process import Process, ProcessSpec
from shared.runtime.tasks import TaskGroup
from tests.support.api import Api
from tests.support.goprograms import from_checkout, operator, source_of
from tools.frameworks_check.environments import environment, packages
from tools.frameworks_check.operators import Operator, Webhooks

MOUNT: Final = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 - compiled into them
"""Where the operators of Kubeflow expect the Secret with their certificate."""
_READY_S: Final = 60.0
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


def _program(about: Operator, checkout: Path) -> tuple[str, ...]:
    """Return the command of an operator, after building or installing it."""
    if about.environment:
        return str(environment(about.environment) / "bin" / "python"), "-m", about.package
    if about.module:
        return (str(operator(about.program or about.name, about.package, module=about.module)),)
    return (str(from_checkout(about.name, about.package, checkout)),)


def _source(about: Operator, checkout: Path) -> Path:
    """Return the folder that the paths of an operator's files are in."""
    if about.environment:
        return packages(about.environment)
    return source_of(about.source, module=about.module) if about.module else checkout


class RunningOperator:
    """An operator that is installed, and its process."""

    def __init__(self, about: Operator, api: Api, plane: ControlPlane, checkout: Path) -> None:
        """`checkout` is the folder of its repository, if it is not built from a Go module."""
        self.about = about
        self._checkout = checkout
        self._api = api
        self._plane = plane
        self._folder = folder = plane.directory / about.name
        folder.mkdir(parents=True, exist_ok=True)
        metrics, health, self._hooks = free_port(), about.health_port or free_port(), free_port()
        self._health = f"{LOOPBACK}:{health}"
        flags = about.flags(folder, metrics, health, self._hooks)
        server = urlsplit(plane.url)
        places = {"folder": folder, "host": server.hostname, "port": server.port}
        self._process = Process(
            ProcessSpec(
                name=about.name,
                argv=(
                    *_program(about, checkout),
                    *(flag.format(kubeconfig=plane.kubeconfig) for flag in flags),
                ),
                log=folder / "log",
                environ={
                    "KUBECONFIG": str(plane.kubeconfig),
                    **{key: text.format(**places) for key, text in about.environ.items()},
                },
                nice=5,
            )
        )

    async def install(self) -> None:
        """Create its CRDs, its ConfigMap, its namespace and its webhooks."""
        source = _source(self.about, self._checkout)
        await self._plane.apply_crds(source / self.about.crds)
        if self.about.config_map:
            config = {"metadata": {"name": self.about.config_map}, "data": self.about.config}
            await self._api.create("configmaps", config, "default")
        if self.about.webhooks is not None:
            await self._webhooks(source, self.about.webhooks)

    async def _webhooks(self, source: Path, hooks: Webhooks) -> None:
        namespace = hooks.namespace
        await self._api.create("namespaces", {"metadata": {"name": namespace}})
        outside = {"type": "ExternalName", "externalName": "localhost"}
        service = {"metadata": {"name": hooks.service}, "spec": outside}
        await self._api.create("services", service, namespace)
        bundle = "" if hooks.secret or hooks.is_certified else self._certificate(hooks)
        if hooks.secret:
            await self._api.create("secrets", {"metadata": {"name": hooks.secret}}, namespace)
        found = yaml.safe_load_all((source / hooks.manifest).read_text("utf-8"))
        configurations = [each for each in found if each]
        for each, name in zip(configurations, hooks.names, strict=True):
            each["metadata"]["name"] = name
            for webhook in each["webhooks"]:
                client = webhook["clientConfig"]
                client["service"] |= {"name": hooks.service, "namespace": namespace}
                client["service"]["port"] = self._hooks
                if bundle:
                    client["caBundle"] = bundle
                if any("pods" in rule["resources"] for rule in webhook["rules"]):
                    # As the patch of its manifest, or its chart, says.
                    exists = {"key": hooks.pods, "operator": "Exists"}
                    webhook["objectSelector"] = {"matchExpressions": [exists]}
            plural = f"{each['kind'].lower()}s"
            await self._api.request("POST", f"{_ADMISSION}/{plural}", each)

    def _certificate(self, hooks: Webhooks) -> str:
        """Write a certificate for its webhooks; return the authority's, as configurations have it.

        The operator leaves it to others, such as cert-manager.
        """
        authority = Authority(self.about.name)
        host = f"{hooks.service}.{hooks.namespace}.svc"
        authority.issue(pair(self._folder, "tls"), host, hosts=[host])
        return base64.b64encode(authority.certificate.encode()).decode()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it, with its Secret mounted as a kubelet does."""
        hooks = self.about.webhooks
        async with TaskGroup() as tasks:
            mount = None
            if hooks is not None and hooks.secret:
                mount = tasks.create_task(self._mount(hooks), name="mount")
            self._process.start()
            try:
                await self.ready()
                yield
            finally:
                await self._process.stop(grace_s=5.0)
                if mount is not None:
                    mount.cancel()

    async def restart(self) -> None:
        """Kill it and start it again."""
        self._process.kill()
        self._process.start()
        await self.ready()

    async def ready(self) -> None:
        """Wait until it reports that it is ready."""

        async def missing() -> str:
            return await readiness.missing(self._health, self.about.health)

        await self._process.ready(missing, deadline_s=_READY_S)

    async def _mount(self, hooks: Webhooks) -> None:
        MOUNT.mkdir(parents=True, exist_ok=True)
        while True:
            found = await self._api.get("secrets", hooks.namespace, hooks.secret)
            for name, value in (found.get("data") or {}).items():
                content, file = base64.b64decode(value), MOUNT / name
                if not file.exists() or file.read_bytes() != content:
                    file.write_bytes(content)
            await asyncio.sleep(0.5)
