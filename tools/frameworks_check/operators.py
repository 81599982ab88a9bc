"""Operators that come as Go modules: how each is built, installed and started.

An operator runs as a process on the machine, with its own CRDs and webhooks. The API server finds
its webhooks by a Service that is another name of the loopback, so that the certificate that the
operator makes for its Service holds.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pumice.local.authority import Authority, pair
from pumice.local.ports import LOOPBACK, free_port
from pumice.local.process import Process, ProcessSpec
from shared.runtime.tasks import TaskGroup
from tests.support.api import Api
from tests.support.goprograms import is_built, operator, source_of
from tests.support.wait import until

MOUNT: Final = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108 - compiled into them
"""Where the operators of Kubeflow expect the Secret with their certificate."""
_READY_S: Final = 60.0
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


class Webhooks(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks of an operator."""

    manifest: str
    """File of its module."""
    names: tuple[str, ...]
    """Names of its configurations, in the order of the file."""
    namespace: str
    service: str
    secret: str = ""
    """Secret in which it keeps its certificate; empty: the check gives it one."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator."""

    name: str
    title: str
    version: str
    source: str
    """Go module."""
    package: str
    """Package of its program."""
    module: str
    """`tests/support/<module>_module` pins it."""
    crds: str
    """Folder of its module with its CRDs."""
    flags: Callable[[Path, int, int, int], tuple[str, ...]]
    """Flags for a folder, and ports of metrics, health and webhooks."""
    environ: dict[str, str] = {}
    webhooks: Webhooks | None = None
    needs: tuple[str, ...] = ()
    """Operators that it works with."""


def _kuberay(_: Path, metrics: int, health: int, __: int) -> tuple[str, ...]:
    return (
        "--batch-scheduler=volcano",
        "--enable-leader-election=false",
        f"--metrics-addr={LOOPBACK}:{metrics}",
        f"--health-probe-bind-address={LOOPBACK}:{health}",
    )


def _training(_: Path, metrics: int, health: int, hooks: int) -> tuple[str, ...]:
    return (
        "--gang-scheduler-name=volcano",
        f"--metrics-bind-address={LOOPBACK}:{metrics}",
        f"--health-probe-bind-address={LOOPBACK}:{health}",
        f"--webhook-server-port={hooks}",
    )


def _trainer(_: Path, __: int, health: int, hooks: int) -> tuple[str, ...]:
    return (
        f"--health-probe-bind-address={LOOPBACK}:{health}",
        f"--webhook-server-port={hooks}",
    )


def _jobset(folder: Path, metrics: int, health: int, hooks: int) -> tuple[str, ...]:
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": hooks, "certDir": str(folder)},
        "metrics": {"bindAddress": f"{LOOPBACK}:{metrics}"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return (f"--config={folder / 'config.yaml'}",)


KUBERAY: Final = Operator(
    name="kuberay",
    title="KubeRay",
    version="1.5.0",
    source="github.com/ray-project/kuberay/ray-operator",
    package="github.com/ray-project/kuberay/ray-operator",
    module="kuberay",
    crds="config/crd/bases",
    flags=_kuberay,
)
TRAINING: Final = Operator(
    name="training-operator",
    title="Kubeflow training operator",
    version="1.8.1",
    source="github.com/kubeflow/training-operator",
    package="github.com/kubeflow/training-operator/cmd/training-operator.v1",
    module="training",
    crds="manifests/base/crds",
    flags=_training,
    environ={"MY_POD_NAMESPACE": "kubeflow"},
    webhooks=Webhooks(
        manifest="manifests/base/webhook/manifests.yaml",
        names=("validator.training-operator.kubeflow.org",),
        namespace="kubeflow",
        service="training-operator",
        secret="training-operator-webhook-cert",  # noqa: S106 - a name
    ),
)
JOBSET: Final = Operator(
    name="jobset",
    title="JobSet",
    version="0.8.2",
    source="sigs.k8s.io/jobset",
    package="sigs.k8s.io/jobset",
    module="trainer",
    crds="config/components/crd/bases",
    flags=_jobset,
    webhooks=Webhooks(
        manifest="config/components/webhook/manifests.yaml",
        names=("jobset-mutating", "jobset-validating"),
        namespace="jobset-system",
        service="jobset-webhook-service",
    ),
)
TRAINER: Final = Operator(
    name="trainer",
    title="Kubeflow Trainer",
    version="2.0.0",
    source="github.com/kubeflow/trainer/v2",
    package="github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
    module="trainer",
    crds="manifests/base/crds",
    flags=_trainer,
    needs=("jobset",),
    webhooks=Webhooks(
        manifest="manifests/base/webhook/manifests.yaml",
        names=("validator.trainer.kubeflow.org",),
        namespace="kubeflow-system",
        service="kubeflow-trainer-controller-manager",
        secret="kubeflow-trainer-webhook-cert",  # noqa: S106 - a name
    ),
)
OPERATORS: Final = (KUBERAY, TRAINING, JOBSET, TRAINER)
_MINUTES: Final = 2
_MEGABYTES: Final = 45


def cost() -> str:
    """Return a line with the cost of building the operators that are missing, "" for none."""
    missing = [o for o in OPERATORS if not is_built(o.name, module=o.module)]
    if not missing:
        return ""
    names = ", ".join(f"{each.title} {each.version}" for each in missing)
    minutes, size = _MINUTES * len(missing), _MEGABYTES * len(missing)
    return (
        f"to be built, once: {names}; about {minutes} min on two cores, {size} MB of programs stay,"
        " and 1 GB of sources and compiled packages in the caches of Go"
    )


class RunningOperator:
    """An operator that is installed, and its process."""

    def __init__(self, about: Operator, api: Api, kubeconfig: Path, folder: Path) -> None:
        self.about = about
        self._api = api
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_port(), free_port(), free_port()
        self._health, self._hooks = ports[1:]
        program = operator(about.name, about.package, module=about.module)
        self._process = Process(
            ProcessSpec(
                name=about.name,
                argv=(str(program), f"--kubeconfig={kubeconfig}", *about.flags(folder, *ports)),
                log=folder / "log",
                environ=about.environ,
                nice=5,
            )
        )

    async def install(self) -> None:
        """Create its CRDs, its namespace and its webhooks."""
        source = source_of(self.about.source, module=self.about.module)
        for file in sorted((source / self.about.crds).glob("*.yaml")):
            for found in yaml.safe_load_all(file.read_text("utf-8")):
                if found and found["kind"] == "CustomResourceDefinition":
                    await self._crd(found)
        if self.about.webhooks is not None:
            await self._webhooks(source, self.about.webhooks)

    async def _crd(self, crd: dict[str, Any]) -> None:
        await self._api.request("POST", _CRDS, crd)
        name = crd["metadata"]["name"]

        async def established() -> bool:
            found = await self._api.request("GET", f"{_CRDS}/{name}")
            states = (found.get("status") or {}).get("conditions") or ()
            return any(s["type"] == "Established" and s["status"] == "True" for s in states)

        await until(established, deadline_s=_READY_S, describe=lambda: f"{name} is served")

    async def _webhooks(self, source: Path, hooks: Webhooks) -> None:
        namespace = hooks.namespace
        await self._api.create("namespaces", {"metadata": {"name": namespace}})
        outside = {"type": "ExternalName", "externalName": "localhost"}
        service = {"metadata": {"name": hooks.service}, "spec": outside}
        await self._api.create("services", service, namespace)
        bundle = "" if hooks.secret else self._certificate(hooks)
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
                if webhook["name"].endswith("pod.kb.io"):  # as its patch of the manifest says
                    exists = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
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
        """Wait until it says so."""

        async def is_ready() -> bool:
            if self._process.exit_code is not None:
                raise AssertionError(self._process.describe_end())
            url = f"http://{LOOPBACK}:{self._health}/readyz"
            return await asyncio.to_thread(_answers, url)

        await until(is_ready, deadline_s=_READY_S, describe=lambda: f"{self.about.title} is ready")

    async def _mount(self, hooks: Webhooks) -> None:
        MOUNT.mkdir(parents=True, exist_ok=True)
        while True:
            found = await self._api.get("secrets", hooks.namespace, hooks.secret)
            for name, value in (found.get("data") or {}).items():
                content, file = base64.b64decode(value), MOUNT / name
                if not file.exists() or file.read_bytes() != content:
                    file.write_bytes(content)
            await asyncio.sleep(0.5)


def _answers(url: str) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - the loopback
            return bool(reply.status == 200)  # noqa: PLR2004
    except (urllib.error.URLError, OSError):
        return False


def manifest(path: Path) -> list[dict[str, Any]]:
    """Return the objects of an example."""
    found: list[dict[str, Any]] = [d for d in yaml.safe_load_all(path.read_text("utf-8")) if d]
    return json.loads(json.dumps(found))  # type: ignore[no-any-return] # anchors become copies
