"""The API server's side of the local stack: etcd, kube-apiserver, its controllers, KWOK and NATS.

Real programs with what a real cluster has switched on (TLS, RBAC, admission, service accounts,
priority and fairness); what differs from one is listed here with its reason:
- etcd does not sync its files (`--unsafe-no-fsync`): a power loss may cost the local data, and
  nothing else is slow on a laptop's disk. A killed process loses nothing.
- etcd listens on sockets in its data directory, which only its owner enters, and speaks no TLS.
- Nodes need no heartbeat (`--node-monitor-grace-period`): KWOK's fake ones send none.
- No controllers for endpoints, certificates, volumes attached to machines or cloud matters.
- The administrator's token and certificate are in the data directory, which only its owner reads.
"""

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

import msgspec
import yaml

from pumice.embedded.fakekubelet import FakeKubelet
from pumice.local import admin
from pumice.local.authority import ADMIN_NAME, REQUEST_HEADERS, Pki, ensure_pki
from pumice.local.errors import unwrapped
from pumice.local.files import write_private
from pumice.local.fleet import FleetHyperNode, NodeShape
from pumice.local.kubeconfig import KubeconfigEntry, write_kubeconfig
from pumice.local.nats import NatsServer
from pumice.local.ports import LOOPBACK, claim, free_port
from pumice.local.process import Probe, Process, ProcessSpec, go_environ
from shared.api import crdgen
from shared.runtime.tasks import TaskGroup

START_S: Final = 90.0
STAGES: Final = Path(__file__).with_name("stages.yaml")
ROLES: Final = Path(__file__).with_name("roles.yaml")
"""The roles of users of k8s/base."""
CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)
_NO_HEARTBEAT: Final = "87600h"
_ETCD: Final = "unix://client.sock:0"
"""A socket of that name in the working directory: etcd wants a host and a port of each address."""
_ETCD_PEERS: Final = "unix://peer.sock:0"


Api = Literal["real", "embedded"]
"""kube-apiserver with etcd and its controllers, or `pumice.embedded.apiserver` in their place."""


class ControlPlaneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a control plane."""

    directory: Path
    """Everything that is kept: data, certificates, logs, kubeconfig."""
    port: int = 0
    """Port of the API server; 0 picks a free one, as in the next field."""
    nats_port: int = 0
    cluster: str = "local"
    api: Api = "real"
    logs: Path | None = None
    """Directory of the logs; None: `logs` in the other one."""
    audit_log: bool = False
    """Write `audit.log` (metadata of each request), for measurements."""
    apiserver_flags: tuple[str, ...] = ()
    """Further flags of kube-apiserver, for tests and measurements."""
    controllers_flags: tuple[str, ...] = ()
    """Further flags of kube-controller-manager, likewise."""


class ControlPlane:
    """Starts and stops the programs; `processes` gives access to each by its name.

    Use it as an async context manager, or call `start` and `stop`. `start` on a directory that
    was used before continues with its data.
    """

    api_program: ClassVar[str] = "kube-apiserver"
    node_program: ClassVar[str] = "kwok"
    """Program that makes fake nodes ready."""

    def __init__(self, options: ControlPlaneOptions, binaries: Mapping[str, Path]) -> None:
        directory = options.directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.options = options
        self.directory = directory
        self.logs = options.logs or directory / "logs"
        self.kubeconfig = directory / "kubeconfig"
        self.pki = ensure_pki(directory / "pki")
        self.token = _token(directory / "pki" / "tokens.csv")
        self.port = claim(options.port, owner=self.api_program, flag="--port")
        self.url = f"https://{LOOPBACK}:{self.port}"
        self._binaries = binaries
        self._kwok_port = free_port()
        self._kubelet = FakeKubelet(free_port(), self.pki.server)
        self.nats = NatsServer(
            binary=binaries["nats-server"],
            directory=directory / "nats",
            log=self.logs / "nats-server.log",
            port=options.nats_port,
            cluster=options.cluster,
        )
        self.processes: dict[str, Process] = {
            **self._programs(),
            "nats-server": self.nats.process,
        }

    def _programs(self) -> dict[str, Process]:
        return {
            "etcd": self._process("etcd", self._etcd_flags(), cwd=self._etcd_data),
            "kube-apiserver": self._process(
                "kube-apiserver", self._apiserver_flags(), cwd=self._etcd_data
            ),
            "kube-controller-manager": self._process(
                "kube-controller-manager", self._controllers_flags()
            ),
            "kwok": self._process("kwok", self._kwok_flags()),
        }

    async def start(self) -> None:
        """Start everything and wait until pods can be created.

        Raises LocalError with the last log line of a program that does not come up; what had been
        started is stopped again.
        """
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(self.stop)
            self._write_kubeconfig()
            with unwrapped():
                async with TaskGroup() as tasks:
                    tasks.create_task(self.nats.start(), name="nats-server")
                    tasks.create_task(self._start_kubernetes(), name="kubernetes")
            on_failure.pop_all()

    async def _start_kubernetes(self) -> None:
        await self._kubelet.start()
        await self.start_program("etcd")
        await self.start_program("kube-apiserver")
        async with TaskGroup() as tasks:
            for name in ("kube-controller-manager", "kwok"):
                tasks.create_task(self.start_program(name), name=name)

    async def start_program(self, name: str) -> None:
        """Start one program and wait until it does its work."""
        process = self.processes[name]
        if name == "nats-server":
            await self.nats.start()
            return
        if name == "etcd":
            self._etcd_data.mkdir(mode=0o700, exist_ok=True)
            self._etcd_socket.unlink(missing_ok=True)  # of one that was killed
        process.start()
        async with admin.connect(self.url, self.pki) as client:
            await process.ready(self._probe(name, client), deadline_s=START_S)

    def _probe(self, name: str, client: admin.Admin) -> Probe:
        probes: dict[str, Probe] = {
            "etcd": self._etcd_listens,
            "kube-apiserver": client.probe,
            "kube-controller-manager": client.accounts_ready,
            "kwok": lambda: _listens(self._kwok_port),
        }
        return probes[name]

    async def restart(self, name: str, *, kill: bool = False) -> None:
        """Stop (or kill -9) one program and start it again on its port and data."""
        if kill:
            self.processes[name].kill()
        else:
            await self.processes[name].stop()
        await self.start_program(name)

    async def stop(self) -> None:
        """Stop all programs, clients first; one that is not gone after its grace is killed."""
        order = ("kwok", "kube-controller-manager", "nats-server")
        async with TaskGroup() as tasks:
            for name in order:
                tasks.create_task(self.processes[name].stop(grace_s=5.0), name=name)
        # An API server waits a minute for open watches; their clients have been stopped before.
        await self.processes["kube-apiserver"].stop(grace_s=1.0)
        await self.processes["etcd"].stop(grace_s=5.0)
        await self._kubelet.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def add_nodes(self, *shapes: NodeShape) -> None:
        """Add fake nodes and wait until all of them take pods."""
        names = {name for shape in shapes for name in shape.names()}
        async with admin.connect(self.url, self.pki) as client:
            await client.add_nodes(shapes)

            async def ready() -> str:
                are = len(names & await client.ready_nodes())
                return "" if are == len(names) else f"{are} of {len(names)} nodes are ready"

            await self.processes[self.node_program].ready(ready, deadline_s=START_S)

    async def add_hyper_nodes(self, *hyper_nodes: FleetHyperNode) -> None:
        """Add parts of the network; the CRDs must be there."""
        async with admin.connect(self.url, self.pki) as client:
            await client.add_hyper_nodes(hyper_nodes)

    async def apply_crds(self, directory: Path | None = None) -> list[str]:
        """Apply the CRDs of a directory, or ours; returns their names."""
        manifests = admin.crd_manifests(directory) if directory else crdgen.manifests()
        async with admin.connect(self.url, self.pki) as client:
            return await client.apply_crds(manifests)

    async def apply_roles(self) -> list[str]:
        """Apply the roles of users, which join `view`, `edit` and `admin`; returns their names."""
        manifests = yaml.safe_load_all(ROLES.read_text(encoding="utf-8"))
        async with admin.connect(self.url, self.pki) as client:
            return await client.apply_cluster_roles(manifests)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig of the administrator for `kubectl` and the services."""
        write_kubeconfig(path, KubeconfigEntry(server=self.url, ca=self.pki.ca, token=self.token))

    def _write_kubeconfig(self) -> None:
        self.write_kubeconfig(self.kubeconfig)
        write_kubeconfig(
            self.directory / "pki" / "parts.kubeconfig",
            # Not our certificate: the API server verifies that anew for each request.
            KubeconfigEntry(server=self.url, ca=self.pki.ca, token=self.token, user="pumice-parts"),
        )

    @property
    def _etcd_data(self) -> Path:
        return self.directory / "etcd"

    @property
    def _etcd_socket(self) -> Path:
        return self._etcd_data / _ETCD.removeprefix("unix://")

    async def _etcd_listens(self) -> str:
        return "" if self._etcd_socket.is_socket() else "it does not listen yet"

    def _process(self, name: str, flags: list[str], *, cwd: Path | None = None) -> Process:
        return Process(
            ProcessSpec(
                name=name,
                argv=(str(self._binaries[name]), *flags),
                log=self.logs / f"{name}.log",
                environ=go_environ(main=name == self.api_program),
                cwd=cwd,
            )
        )

    def _etcd_flags(self) -> list[str]:
        return [
            f"--data-dir={self._etcd_data}",
            "--name=pumice",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_ETCD_PEERS}",
            f"--initial-advertise-peer-urls={_ETCD_PEERS}",
            f"--initial-cluster=pumice={_ETCD_PEERS}",
            "--unsafe-no-fsync",
            f"--quota-backend-bytes={8 * 1024**3}",
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        flags = [
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            f"--tls-cert-file={self.pki.server.cert}",
            f"--tls-private-key-file={self.pki.server.key}",
            f"--client-ca-file={self.pki.ca}",
            f"--token-auth-file={self.directory / 'pki' / 'tokens.csv'}",
            f"--etcd-servers={_ETCD}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--enable-priority-and-fairness=false",  # one user, and one machine that is the limit
            "--max-requests-inflight=1000",
            "--max-mutating-requests-inflight=1000",
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=InternalDNS",
            f"--kubelet-port={self._kubelet.port}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.pki.service_account_key}",
            f"--service-account-signing-key-file={self.pki.service_account_key}",
            *_aggregation_flags(self.pki),
        ]
        if self.options.audit_log:
            policy = self.directory / "audit-policy.yaml"
            policy.write_text(
                "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n"
                "rules: [{level: Metadata}]\n",
                encoding="utf-8",
            )
            flags += [
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self.logs / 'audit.log'}",
                "--audit-log-mode=batch",
                "--audit-log-maxsize=4096",  # MiB: readers want one file
            ]
        return [*flags, *self.options.apiserver_flags]

    def _controllers_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.directory / 'pki' / 'parts.kubeconfig'}",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--service-account-private-key-file={self.pki.service_account_key}",
            f"--root-ca-file={self.pki.ca}",
            f"--node-monitor-grace-period={_NO_HEARTBEAT}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *self.options.controllers_flags,
        ]

    def _kwok_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.directory / 'pki' / 'parts.kubeconfig'}",
            f"--config={STAGES}",
            f"--server-address={LOOPBACK}:{self._kwok_port}",
            "--v=WARN",
        ]


def _aggregation_flags(keys: Pki) -> list[str]:
    """Return how the API server passes requests on, and proves that it is the API server."""
    return [
        f"--requestheader-client-ca-file={keys.front_proxy_ca}",
        *(f"--requestheader-{key}={name}" for key, name in REQUEST_HEADERS.items()),
        f"--proxy-client-cert-file={keys.front_proxy.cert}",
        f"--proxy-client-key-file={keys.front_proxy.key}",
    ]


async def _listens(port: int) -> str:
    """Return "" when a server accepts connections at a port, else the text of the OSError."""
    _, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.close()
    return ""


def _token(path: Path) -> str:
    """Return the administrator's token, stored in the format that kube-apiserver reads."""
    if path.exists():
        return path.read_text(encoding="utf-8").split(",", 1)[0]
    token = secrets.token_urlsafe(32)
    write_private(path, f'{token},{ADMIN_NAME},{ADMIN_NAME},"system:masters"\n')
    return token
