"""Operators: what each consists of, and the flags that start it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pumice.local.ports import LOOPBACK
from tests.support.goprograms import is_built
from tools.frameworks_check.environments import pinned, spark_home


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
    pods: str = ""
    """Label of the pods that its webhooks of pods are for."""
    is_certified: bool = False
    """Whether it makes its Secret and its files itself, and writes its authority into them."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator."""

    name: str
    title: str
    version: str
    source: str = ""
    """Go module."""
    package: str
    """Package of its program; module of Python with an environment."""
    environment: str = ""
    """Its environment, if it is a program of Python (see `environments`)."""
    module: str = ""
    """`tests/support/<module>_module` pins it; empty: it is built from a checkout."""
    crds: str
    """Folder of its module, or of the packages of its environment, with its CRDs."""
    flags: Callable[[Path, int, int, int], tuple[str, ...]]
    """Flags for a folder, and ports of metrics, health and webhooks; `{kubeconfig}` is a path."""
    program: str = ""
    """Name of its program in the cache, if another operator has it too."""
    environ: dict[str, str] = {}
    """`{folder}` in values stands for its folder, `{host}` and `{port}` for the API server's."""
    health: str = "/readyz"
    """Path of its readiness."""
    health_port: int = 0
    """Port that is compiled into it; 0: a flag sets it."""
    webhooks: Webhooks | None = None
    needs: tuple[str, ...] = ()
    """Operators that it works with."""
    config_map: str = ""
    """ConfigMap of the namespace `default` that it reads; empty: none."""
    config: dict[str, str] = {}
    """Data of the ConfigMap."""


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


def _mpi(_: Path, metrics: int, __: int, ___: int) -> tuple[str, ...]:
    return (
        "--gang-scheduling=volcano",
        "--lock-namespace=default",
        "--kube-api-qps=50",
        "--kube-api-burst=100",
        f"--monitoring-port={metrics}",
    )


def _argo(_: Path, __: int, ___: int, ____: int) -> tuple[str, ...]:
    return ("--executor-image=example.com/argoexec:1", "--namespace=default")


def _kthena(_: Path, __: int, health: int, ___: int) -> tuple[str, ...]:
    return (
        "--controllers=modelserving",
        "--kubeconfig={kubeconfig}",
        "--enable-webhook=false",  # it finds the API server only from inside a pod
        f"--debug-port={health}",
    )


def _spark(folder: Path, metrics: int, health: int, __: int) -> tuple[str, ...]:
    submit = folder / "bin" / "spark-submit"
    submit.parent.mkdir(exist_ok=True)
    submit.write_text(
        f'#!/bin/sh\nSPARK_HOME={spark_home()} exec {spark_home()}/bin/spark-submit "$@"\n', "utf-8"
    )
    submit.chmod(0o755)
    return (
        "controller",
        "start",
        "--enable-batch-scheduler=true",
        "--enable-ui-service=false",
        f"--metrics-bind-address={LOOPBACK}:{metrics}",
        f"--health-probe-bind-address={LOOPBACK}:{health}",
    )


def _spark_webhook(folder: Path, metrics: int, health: int, hooks: int) -> tuple[str, ...]:
    return (
        "webhook",
        "start",
        "--mutating-webhook-name=spark-mutating",
        "--validating-webhook-name=spark-validating",
        "--webhook-svc-name=spark-operator-webhook-svc",
        "--webhook-svc-namespace=spark-operator",
        f"--webhook-cert-dir={folder}",
        f"--webhook-port={hooks}",
        f"--metrics-bind-address={LOOPBACK}:{metrics}",
        f"--health-probe-bind-address={LOOPBACK}:{health}",
    )


def _dask(_: Path, __: int, health: int, ___: int) -> tuple[str, ...]:
    return (
        "run",
        "--module=dask_kubernetes.operator.controller",
        "--all-namespaces",
        "--standalone",
        f"--liveness=http://{LOOPBACK}:{health}/healthz",
    )


class _Configured(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of an operator that reads a file, as JobSet and LeaderWorkerSet do."""

    api: str
    """Group and version of its configuration."""
    more: dict[str, Any] = {}

    def __call__(self, folder: Path, metrics: int, health: int, hooks: int) -> tuple[str, ...]:
        config = {
            "apiVersion": self.api,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"port": hooks, "certDir": str(folder)},
            "metrics": {"bindAddress": f"{LOOPBACK}:{metrics}"},
            "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
            **self.more,
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
    flags=_Configured(api="config.jobset.x-k8s.io/v1alpha1"),
    webhooks=Webhooks(
        manifest="config/components/webhook/manifests.yaml",
        names=("jobset-mutating", "jobset-validating"),
        namespace="jobset-system",
        service="jobset-webhook-service",
        pods="jobset.sigs.k8s.io/jobset-name",
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
MPI: Final = Operator(
    name="mpi-operator",
    title="MPI operator",
    version="0.6.0",
    source="github.com/kubeflow/mpi-operator",
    package="github.com/kubeflow/mpi-operator/cmd/mpi-operator",
    module="mpi",
    crds="manifests/base",
    flags=_mpi,
    health="/healthz",
    health_port=8080,
)
LWS: Final = Operator(
    name="lws",
    title="LeaderWorkerSet",
    version="0.7.0",
    source="sigs.k8s.io/lws",
    package="sigs.k8s.io/lws/cmd",
    module="lws",
    crds="config/crd/bases",
    flags=_Configured(
        api="config.lws.x-k8s.io/v1alpha1",
        more={"gangSchedulingManagement": {"schedulerProvider": "volcano"}},
    ),
    webhooks=Webhooks(
        manifest="config/webhook/manifests.yaml",
        names=("lws-mutating", "lws-validating"),
        namespace="lws-system",
        service="lws-webhook-service",
        pods="leaderworkerset.sigs.k8s.io/name",
    ),
)
ARGO: Final = Operator(
    name="argo-workflows",
    title="Argo Workflows",
    version="3.7.0",
    source="github.com/argoproj/argo-workflows/v3",
    package="github.com/argoproj/argo-workflows/v3/cmd/workflow-controller",
    module="argo",
    crds="manifests/base/crds/minimal",
    flags=_argo,
    environ={"LEADER_ELECTION_DISABLE": "true"},
    health="/healthz",
    health_port=6060,
    config_map="workflow-controller-configmap",
    config={"metricsConfig": "enabled: false\n"},
)
SPARK_WEBHOOK: Final = Operator(
    name="spark-webhook",
    title="Webhook of the Spark operator",
    version="2.3.0",
    source="github.com/kubeflow/spark-operator/v2",
    package="github.com/kubeflow/spark-operator/v2/cmd/operator",
    module="spark",
    program="spark-operator",
    crds="config/crd/bases",
    flags=_spark_webhook,
    webhooks=Webhooks(
        manifest="config/webhook/manifests.yaml",
        names=("spark-mutating", "spark-validating"),
        namespace="spark-operator",
        service="spark-operator-webhook-svc",
        pods="sparkoperator.k8s.io/launched-by-spark-operator",
        is_certified=True,
    ),
)
SPARK: Final = Operator(
    name="spark-operator",
    title="Spark operator",
    version="2.3.0",
    source=SPARK_WEBHOOK.source,
    package=SPARK_WEBHOOK.package,
    module="spark",
    crds=SPARK_WEBHOOK.crds,
    flags=_spark,
    environ={
        "SPARK_HOME": "{folder}",
        "SPARK_LOCAL_IP": LOOPBACK,
        "KUBERNETES_SERVICE_HOST": "{host}",
        "KUBERNETES_SERVICE_PORT": "{port}",
    },
    needs=("spark-webhook",),
)
KTHENA: Final = Operator(
    name="kthena",
    title="kthena",
    version="1.0.0",
    source="github.com/volcano-sh/kthena",
    package="./cmd/kthena-controller-manager",
    crds="charts/kthena/charts/workload/crds",
    flags=_kthena,
    health="/debug/modelserving/cache",
)
DASK: Final = Operator(
    name="dask",
    title="Dask operator",
    version=pinned("dask", "dask-kubernetes"),
    package="kopf",
    environment="dask",
    crds="dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds",
    flags=_dask,
    health="/healthz",
)
OPERATORS: Final = (
    KUBERAY,
    TRAINING,
    MPI,
    JOBSET,
    LWS,
    TRAINER,
    ARGO,
    SPARK_WEBHOOK,
    SPARK,
    KTHENA,
    DASK,
)
_MINUTES: Final = 2
_MEGABYTES: Final = 45


def cost() -> str:
    """Return a line with the cost of building the operators that are missing, "" for none."""
    modules = [o for o in OPERATORS if o.module and not o.program]
    missing = [o for o in modules if not is_built(o.name, module=o.module)]
    if not missing:
        return ""
    names = ", ".join(f"{each.title} {each.version}" for each in missing)
    minutes, size = _MINUTES * len(missing), _MEGABYTES * len(missing)
    return (
        f"to be built, once: {names}; about {minutes} min on two cores, {size} MB of programs stay,"
        " and 1 GB of sources and compiled packages in the caches of Go"
    )


def manifest(path: Path, word: str = "", name: str = "") -> list[dict[str, Any]]:
    """Return the objects of an example; in their names and labels `name` replaces `word`."""
    text = path.read_text("utf-8")
    if word:
        text = re.sub(rf"\b{word}\b(?!:)", name, text)
    found: list[dict[str, Any]] = [d for d in yaml.safe_load_all(text) if d]
    return json.loads(json.dumps(found))  # type: ignore[no-any-return] # anchors become copies
