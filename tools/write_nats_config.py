"""Writes `k8s/base/nats/config.yaml`, the NATS server's ConfigMap (`make crds`)."""

import textwrap
from pathlib import Path
from typing import Final

from pumice.deploy.nats_config import Server, render, variables

FILE: Final = Path(__file__).parent.parent / "k8s" / "base" / "nats" / "config.yaml"
CLUSTER: Final = "main"
"""PUMICE_CLUSTER in k8s/base/settings.yaml."""

CERTIFICATE: Final = "/etc/nats-tls"
"""Where k8s/base/nats/statefulset.yaml mounts the server's certificate."""

NAMESPACES: Final[tuple[str, ...]] = ()
"""Namespaces whose events have subscribers of their own; the declarer's `--event-namespaces`."""

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


def text() -> str:
    """Return the text of the file."""
    server = Server(
        name="$PUMICE_NATS_SERVER_NAME",
        cluster=CLUSTER,
        store_dir="/data",
        certificate=CERTIFICATE,
        namespaces=NAMESPACES,
    )
    return _HEAD + textwrap.indent(render(server, variables(CLUSTER, NAMESPACES)), "    ")


def main() -> None:
    """Write the file."""
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
