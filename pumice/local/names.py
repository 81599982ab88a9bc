"""Names of the programs of a local stack; apart, because `pumice status` needs little else."""

from typing import Final

SERVICES: Final = (
    "cache",
    "scheduler",
    "binder",
    "controller",
    "admission",
    "visibility",
)
"""Our services, in the order in which they are started."""
ADD_ONS: Final = ("visibility",)
"""Services without which the others schedule as well."""
OPTIONAL: Final = ("accounting",)
"""Services that run only where `--with` names them."""
IN_PROCESS: Final = "services"
"""The process that all of them live in with `pumice run --in-process`."""
PROGRAMS: Final = (
    "apiserver",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kwok",
    "nats-server",
    IN_PROCESS,
)
"""Everything else, of both kinds of API server."""
