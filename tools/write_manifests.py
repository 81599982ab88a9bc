"""Writes manifests that are made from code (`make crds`).

`k8s/crds` from the typed models, one file per kind and no others; `k8s/base/nats/config.yaml`, the
NATS server's ConfigMap, and the one beside it for three servers; the scheduler of single pods,
which is the base's with other flags; and the demo's own copies of the examples that it plays. The
texts come from functions of their own: tests compare the checked-in files with what they return.
"""

import textwrap
from pathlib import Path
from typing import Final

import yaml

from pumice.demo.story import FILES, WAVES
from pumice.deploy import nats_secrets
from pumice.deploy.nats_config import (
    GIB,
    ROUTE_PORT,
    NatsServerConfig,
    Routes,
    render,
    render_routes,
    variables,
)
from shared.api.crdgen import manifest
from shared.api.crds import CRDS
from shared.contracts.subjects import SINGLE_PODS

_ROOT: Final = Path(__file__).parents[1]
EXAMPLES: Final = _ROOT / "examples"

CRD_FOLDER: Final = _ROOT / "k8s" / "crds"
HEADER: Final = "# Made by `make crds` from the types in shared/api: change those, not this file.\n"

NATS_FILE: Final = _ROOT / "k8s" / "base" / "nats" / "config.yaml"
ROUTES_FILE: Final = _ROOT / "k8s" / "overlays" / "nats-of-three" / "routes.yaml"
SCHEDULER: Final = _ROOT / "k8s" / "base" / "services" / "scheduler.yaml"
AGENT_FILE: Final = _ROOT / "k8s" / "overlays" / "agent-scheduler" / "scheduler.yaml"
SERVERS: Final = 3
"""NATS servers of that overlay."""
USERS_ROLES: Final = tuple(
    _ROOT / "k8s" / "base" / "rbac" / name for name in ("users.yaml", "visibility-users.yaml")
)
ROLES_FILE: Final = _ROOT / "pumice" / "local" / "roles.yaml"
_ROLES_HEAD: Final = "# Made by `make crds` from k8s/base/rbac: change that, not this file.\n"
CLUSTER: Final = "main"
"""PUMICE_CLUSTER in k8s/base/settings.yaml."""

CERTIFICATE: Final = "/etc/nats-tls"
"""Where k8s/base/nats/statefulset.yaml mounts the server's certificate."""

NAMESPACES: Final[tuple[str, ...]] = ()
"""Namespaces whose events have subscribers of their own; the declarer's `--event-namespaces`."""

NAMESPACE: Final = "pumice-system"
STORE: Final = "/data"
"""Where it mounts the server's volume."""
STORE_OF_THREE: Final = 12 * GIB
"""STATE is in a file on three servers, so that files take more room."""
_SOURCE: Final = "shared/contracts/permissions.py"
_HEAD: Final = """\
# Made by `make crds` from shared/contracts/permissions.py: change that, not this file.
apiVersion: v1
kind: ConfigMap
metadata:
  name: pumice-nats
  namespace: pumice-system
  labels:
    app.kubernetes.io/name: nats
    app.kubernetes.io/part-of: pumice
data:
  nats.conf: |
"""
_AGENT_HEAD: Final = """\
# Made by `make crds` from k8s/base/services/scheduler.yaml: change that, not this file.
# Leader and warm standby of the scheduler for single pods, beside the one for groups.
"""
_MOUNT: Final = """\
            - name: scheduler-config
              mountPath: /etc/pumice/scheduler
              readOnly: true
"""
_VOLUME: Final = """\
        - name: scheduler-config
          configMap:
            name: pumice-scheduler-configmap
"""
_FLAGS: Final = f"""\
            - --single-pods=true
            - --scheduler-name={SINGLE_PODS}
            - --scheduler-sharding-name={SINGLE_PODS}
"""


def crds() -> dict[str, str]:
    """Return the text of every file in `k8s/crds/` by its name."""
    files = {
        f"{crd.kind.group}_{crd.kind.plural}.yaml": HEADER
        + yaml.safe_dump(manifest(crd), sort_keys=False, width=100, allow_unicode=True)
        for crd in CRDS
    }
    listing = "".join(f"  - {name}\n" for name in sorted(files))
    files["kustomization.yaml"] = (
        f"{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources:\n{listing}"
    )
    return files


def write_crds() -> None:
    """Write `k8s/crds`; remove those that no kind makes any more."""
    files = crds()
    CRD_FOLDER.mkdir(parents=True, exist_ok=True)
    for path in sorted(CRD_FOLDER.glob("*.yaml")):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (CRD_FOLDER / name).write_text(text, encoding="utf-8")


def nats_config() -> str:
    """Return the text of the ConfigMap."""
    server = NatsServerConfig(
        name="$PUMICE_NATS_SERVER_NAME",
        cluster=CLUSTER,
        store_dir=STORE,
        certificate=CERTIFICATE,
        namespaces=NAMESPACES,
    )
    return _HEAD + textwrap.indent(render(server, variables(CLUSTER, NAMESPACES)), "    ")


def nats_of_three() -> str:
    """Return the text of the ConfigMap that makes three servers of one."""
    routes = Routes(
        name="pumice",
        listen=f"0.0.0.0:{ROUTE_PORT}",
        peers=tuple(
            f"{nats_secrets.server_address(number, NAMESPACE)}:{ROUTE_PORT}"
            for number in range(SERVERS)
        ),
        certificate=CERTIFICATE,
    )
    server = NatsServerConfig(
        name="", cluster=CLUSTER, store_dir=STORE, file_bytes=STORE_OF_THREE, routes=routes
    )
    head = _HEAD.replace("name: pumice-nats\n", "name: pumice-nats-of-three\n", 1)
    head = head.replace("nats.conf", "nats-of-three.conf").replace(_SOURCE, "pumice/deploy")
    return head + textwrap.indent(render_routes(server, beside="nats.conf"), "    ")


def agent_scheduler() -> str:
    """Return the text of the scheduler of single pods: the base's with other flags."""
    text = SCHEDULER.read_text(encoding="utf-8").partition("\n")[2]
    for old, new in (
        ("name: pumice-scheduler\n", f"name: pumice-{SINGLE_PODS}\n"),
        ("name: scheduler\n", f"name: {SINGLE_PODS}\n"),
        ("            - --scheduler-conf=/etc/pumice/scheduler/volcano-scheduler.conf\n", _FLAGS),
    ):
        assert old in text, old
        text = text.replace(old, new)
    for part in (_MOUNT, _VOLUME):
        assert part in text, part
        text = text.replace(part, "")
    return _AGENT_HEAD + text


def users_roles() -> str:
    """Return the roles of users, for `pumice up`: a distribution has no folder `k8s`."""
    texts = [file.read_text(encoding="utf-8") for file in USERS_ROLES]
    return _ROLES_HEAD + "---\n".join(texts)


def copy_jobs() -> None:
    """Copy the examples that the demo plays: an installed distribution has no folder `examples`."""
    for file in (file for wave in WAVES for file in wave):
        target = FILES / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((EXAMPLES / file).read_bytes())


def main() -> None:
    """Write everything."""
    write_crds()
    NATS_FILE.write_text(nats_config(), encoding="utf-8")
    ROUTES_FILE.write_text(nats_of_three(), encoding="utf-8")
    AGENT_FILE.write_text(agent_scheduler(), encoding="utf-8")
    ROLES_FILE.write_text(users_roles(), encoding="utf-8")
    copy_jobs()


if __name__ == "__main__":
    main()
