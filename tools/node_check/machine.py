"""Two nodes and a control plane on this machine, in namespaces of their own.

`__main__` starts the program a second time under `unshare`: with its own network, mounts and
process numbers. Everything here runs in there, so that nothing of it is seen outside, and when its
first process ends the kernel ends all the others. Both nodes are kubelets with a containerd each;
they share one network, a bridge.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import yaml

from pumice.local.authority import Authority, Pair, pair, write_signing_key
from pumice.local.files import write_private
from pumice.local.kubeconfig import KubeconfigEntry, write_kubeconfig
from tools.compose_docker import CheckError
from tools.node_check.images import PAUSE
from tools.node_check.programs import CNI, Programs

HERE: Final = Path(__file__).parent
HOST: Final = "10.200.0.1"
SERVER: Final = f"https://{HOST}:6443"
DNS: Final = "10.96.0.10"
NODES: Final = ("node-a", "node-b")
_PODS: Final = "10.244.0.0/16"
_SERVICES: Final = "10.96.0.0/16"
_CGROUPS: Final = Path("/sys/fs/cgroup")
_START_S: Final = 120.0
_LOOK_S: Final = 0.2
_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def wait_for(what: str, look: Callable[[], str], *, deadline_s: float) -> float:
    """Wait until `look` answers "", return the seconds; CheckError has its last answer."""
    begin = time.monotonic()
    while missing := look():
        if time.monotonic() - begin > deadline_s:
            raise CheckError(f"not so after {deadline_s:g} s: {what}: {missing}")
        time.sleep(_LOOK_S)
    return time.monotonic() - begin


class Machine:
    """The programs that run, and kubectl on them."""

    def __init__(self, folder: Path, programs: Programs, archives: Sequence[Path]) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.audit = self.logs / "audit.log"
        self._programs = programs
        self._archives = archives
        self._pki = folder / "pki"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs.mkdir(parents=True, exist_ok=True)
        self._pki.mkdir(exist_ok=True)

    def start(self) -> None:
        """Start everything; return when both nodes are ready. Raises CheckError."""
        _network()
        self._make_certificates()
        self._start_control_plane()
        for number, node in enumerate(NODES):
            self._start_node(node, number)
        self._run("kube-proxy", "kube-proxy", f"--config={self._proxy_config()}")
        self.kubectl("apply", "--server-side", "-f", str(HERE / "name-server.yaml"))
        wait_for("both nodes are ready", self._nodes_missing, deadline_s=_START_S)
        self.kubectl(
            "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s"
        )

    # --- what runs on it ----------------------------------------------------------------------

    def kubectl(self, *words: str, stdin: str = "", may_fail: bool = False) -> str:
        """Return what kubectl says, its errors included if it may fail. Raises CheckError."""
        done = subprocess.run(
            [self._programs["kubectl"], f"--kubeconfig={self._pki / 'admin.conf'}", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_START_S + 60,
            check=False,
        )
        if done.returncode and not may_fail:
            raise CheckError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout + (done.stderr if may_fail else "")

    def get(self, *words: str) -> Any:  # noqa: ANN401 - free JSON
        """Return an object, or a list of objects."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply objects."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def apply_crds(self, name: str) -> None:
        """Apply the CRDs of an operator."""
        self.kubectl("apply", "--server-side", "-f", str(self._programs[name]))

    @contextlib.contextmanager
    def operator(self, name: str, *words: str) -> Iterator[None]:
        """Run an operator beside the control plane, as an administrator."""
        conf = f"KUBECONFIG={self._pki / 'admin.conf'}"
        with (self.logs / f"{name}.log").open("ab") as log:
            child = _spawn(["env", conf, str(self._programs[name]), *words], log)
        try:
            yield
        finally:
            child.kill()
            child.wait()

    def stop_kubelet(self, node: str) -> None:
        """Kill a kubelet and its containerd: the node says nothing any more."""
        for program in ("kubelet", "containerd"):
            self._running.pop(f"{program}-{node}").kill()

    # --- how it is made -----------------------------------------------------------------------

    def _make_certificates(self) -> None:
        authority = Authority("node-check")
        write_private(self._pki / "ca.crt", authority.certificate)
        hosts = (
            *("localhost", "127.0.0.1", HOST, "10.96.0.1"),
            *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
        )
        authority.issue(self._pair("server"), "kube-apiserver", hosts=hosts)
        authority.issue(self._pair("front-proxy"), "front-proxy-client")
        authority.issue(self._pair("admin"), "admin", groups=("system:masters",))
        for node in NODES:
            authority.issue(self._pair(node), f"system:node:{node}", groups=("system:nodes",))
        for name in ("admin", *NODES):
            entry = KubeconfigEntry(
                server=SERVER, ca=self._pki / "ca.crt", client=self._pair(name), user=name
            )
            write_kubeconfig(self._pki / f"{name}.conf", entry)
        write_signing_key(self._pki / "service-account.key")

    def _pair(self, name: str) -> Pair:
        return pair(self._pki, name)

    def _start_control_plane(self) -> None:
        pki, admin = self._pki, self._pair("admin")
        self._run("etcd", "etcd", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync")
        policy = self._file("audit-policy.yaml", _AUDIT)
        self._run(
            "kube-apiserver",
            "kube-apiserver",
            f"--advertise-address={HOST}",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--tls-cert-file={self._pair('server').cert}",
            f"--tls-private-key-file={self._pair('server').key}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={admin.cert}",
            f"--kubelet-client-key={admin.key}",
            f"--requestheader-client-ca-file={pki / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self._pair('front-proxy').cert}",
            f"--proxy-client-key-file={self._pair('front-proxy').key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction,DefaultTolerationSeconds",
            "--default-not-ready-toleration-seconds=5",
            "--default-unreachable-toleration-seconds=5",
            f"--service-cluster-ip-range={_SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'service-account.key'}",
            f"--service-account-signing-key-file={pki / 'service-account.key'}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit}",
        )
        wait_for("the API server is ready", self._server_missing, deadline_s=_START_S)
        self._run(
            "kube-controller-manager",
            "kube-controller-manager",
            f"--kubeconfig={pki / 'admin.conf'}",
            f"--service-account-private-key-file={pki / 'service-account.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--cluster-cidr={_PODS}",
            "--leader-elect=false",
            "--node-monitor-grace-period=12s",
        )
        conf = f"--kubeconfig={pki / 'admin.conf'}"
        self._run("kube-scheduler", "kube-scheduler", conf, "--leader-elect=false")

    def _server_missing(self) -> str:
        return "" if self.kubectl("get", "--raw=/readyz", may_fail=True) == "ok" else "not ready"

    def _nodes_missing(self) -> str:
        ready = {
            node["metadata"]["name"]
            for node in self.get("nodes")["items"]
            for condition in node["status"].get("conditions", [])
            if (condition["type"], condition["status"]) == ("Ready", "True")
        }
        return "" if ready == set(NODES) else f"ready are {sorted(ready)}"

    def _start_node(self, node: str, number: int) -> None:
        folder = self.folder / node
        folder.mkdir()
        socket = folder / "containerd.sock"
        config = self._containerd_config(folder, socket)
        # kubelet and containerd see each other's mounts, and their folder of device plugins is the
        # same for every kubelet: each node has its own mounts.
        script = 'mount -t tmpfs tmpfs /var/lib/kubelet && exec "$@"'
        containerd = (str(self._programs["containerd"]), "--config", str(config))
        self._run(f"containerd-{node}", "unshare", "--mount", "sh", "-c", script, "sh", *containerd)
        wait_for("containerd answers", lambda: self._ctr_missing(socket), deadline_s=_START_S)
        for archive in self._archives:
            self._ctr(socket, "images", "import", "--no-unpack", str(archive))
        kubelet = self._kubelet_config(folder, node, number, socket)
        command = (
            str(self._programs["kubelet"]),
            f"--config={kubelet}",
            f"--kubeconfig={self._pki / f'{node}.conf'}",
            f"--hostname-override={node}",
            f"--node-ip={HOST}",
            f"--root-dir={folder / 'kubelet'}",
        )
        its_mounts = f"--mount=/proc/{self._running[f'containerd-{node}'].pid}/ns/mnt"
        self._run(f"kubelet-{node}", "nsenter", its_mounts, *command)

    def _ctr(self, socket: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self._programs["ctr"], f"--address={socket}", "-n", "k8s.io", *words],
            capture_output=True,
            check=False,
        )

    def _ctr_missing(self, socket: Path) -> str:
        return self._ctr(socket, "version").stderr.decode()

    def _containerd_config(self, folder: Path, socket: Path) -> Path:
        network = folder / "net.d"
        network.mkdir()
        (network / "10-bridge.conflist").write_text(json.dumps(_BRIDGE))
        path = folder / "containerd.toml"
        path.write_text(
            f'version = 2\nroot = "{folder}/containerd"\nstate = "{folder}/run"\n'
            f'[grpc]\naddress = "{socket}"\n'
            '[plugins."io.containerd.grpc.v1.cri"]\n'
            f'sandbox_image = "{PAUSE}"\n'
            "restrict_oom_score_adj = true\n"  # a container may not lower it
            '[plugins."io.containerd.grpc.v1.cri".cni]\n'
            f'bin_dir = "{CNI}"\nconf_dir = "{network}"\n'
            '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
            'runtime_type = "io.containerd.runc.v2"\n'
        )
        return path

    def _kubelet_config(self, folder: Path, node: str, number: int, socket: Path) -> Path:
        resolv = folder / "resolv.conf"
        resolv.write_text("")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(self._pki / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup(node)}",
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{socket}",
            "cpuManagerPolicy": "none",
            "enforceNodeAllocatable": ["pods"],
            "evictionHard": {"memory.available": "100Mi"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": 0,
            "imageMaximumGCAge": "0s",
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "3s",
            "podLogsDir": str(folder / "pods"),
            "port": 10250 + number,
            "resolvConf": str(resolv),
            "runtimeRequestTimeout": "2m",
            "syncFrequency": "10s",
        }
        return self._file(f"kubelet-{node}.yaml", config)

    def _proxy_config(self) -> Path:
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": _PODS,
            "hostnameOverride": NODES[0],
            "clientConnection": {"kubeconfig": str(self._pki / "admin.conf")},
            "conntrack": {"maxPerCore": 0},
        }
        return self._file("kube-proxy.yaml", config)

    def _file(self, name: str, document: dict[str, Any]) -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(document))
        return path

    def _run(self, name: str, program: str, *words: str) -> None:
        with (self.logs / f"{name}.log").open("ab") as log:
            self._running[name] = _spawn([str(self._programs[program]), *words], log)

    def died(self) -> list[str]:
        """Return the programs that have ended by themselves."""
        return [name for name, child in self._running.items() if child.poll() is not None]


def _spawn(argv: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


_BRIDGE: Final = {
    "cniVersion": "1.0.0",
    "name": "node-check",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": _PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def _network() -> None:
    """Make the network of the host, and folders that its programs write to and no other sees."""
    for words in (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "link", "add", "host0", "type", "veth", "peer", "name", "host1"),
        ("ip", "link", "set", "host1", "up"),
        ("ip", "address", "add", f"{HOST}/24", "dev", "host0"),
        ("ip", "link", "set", "host0", "up"),
        ("ip", "route", "add", "default", "via", "10.200.0.254"),
        ("sysctl", "-qw", "net.ipv4.ip_forward=1"),
        ("mount", "-t", "tmpfs", "tmpfs", "/run"),
        ("mkdir", "-p", "/var/lib/cni", "/var/lib/kubelet"),
        ("mount", "-t", "tmpfs", "tmpfs", "/var/lib/cni"),
        ("mount", "-t", "tmpfs", "tmpfs", "/var/lib/kubelet"),
    ):
        subprocess.run(words, check=True)


def cgroup(node: str) -> str:
    """Return the cgroup below which a node's pods are."""
    return f"pumice-{node}"


@contextlib.contextmanager
def cgroups() -> Iterator[None]:
    """Make a cgroup per node in each hierarchy; remove them and all below at the end."""
    roots = [_CGROUPS]
    if not (_CGROUPS / "cgroup.controllers").exists():
        roots = [path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]
    made = [root / cgroup(node) for root in roots for node in NODES]
    for path in made:
        path.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup of version 1
            if (path / name).exists() and (path.parent / name).exists():
                with contextlib.suppress(OSError):
                    (path / name).write_text((path.parent / name).read_text())
    try:
        yield
    finally:
        for path in made:
            _remove(path)


def _remove(path: Path) -> None:
    for below, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            Path(below).rmdir()
