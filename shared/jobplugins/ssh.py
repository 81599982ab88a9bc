"""Job plugin ssh: the pods of a job log into each other without a password (JP3).

One Secret holds a key pair, the public key as the only authorized one, and a client configuration
that knows every pod. It is written once and left alone: pods that run have read its keys, so a
controller that restarts must not make others. The keys are the user's or made where the Secret
is written, since this package is pure and draws no random numbers.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from shared.api import kinds
from shared.api.batch import Job, TaskSpec
from shared.jobplugins import hosts
from shared.jobplugins.arguments import PortDefault, Value, parse
from shared.jobplugins.interface import (
    Companion,
    JobPlugin,
    PodBody,
    add,
    containers,
)

HOME: Final = "/root/.ssh"
FOLDER: Final = ".ssh"
"""Where the files are inside of the volume."""
FILES: Final = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
_OWNER_ONLY: Final = 0o600
_READABLE: Final = 0o644
_LABEL_MAX: Final = 63


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """A private key, and the public key that belongs to it."""

    private: str
    """PEM."""
    public: str
    """A line of `authorized_keys`."""


class Ssh(JobPlugin):
    """The job plugin `ssh`."""

    name = "ssh"
    flags: ClassVar[Mapping[str, Value]] = {
        "ssh-key-file-path": HOME,
        "ssh-private-key": "",
        "ssh-public-key": "",
        "ssh-port": PortDefault(22),
        "no-root": False,
    }
    """`no-root` is of early Volcano; it is taken and has no effect, as there by now."""

    @override
    def problems_with_job(self, job: Job, values: Mapping[str, Value]) -> Iterable[str]:
        """Refuse half a key pair, a relative path, a job whose name makes no name of a volume."""
        if bool(values["ssh-private-key"]) != bool(values["ssh-public-key"]):
            yield "spec.plugins.ssh: --ssh-private-key and --ssh-public-key go together"
        if not str(values["ssh-key-file-path"]).startswith("/"):
            yield "spec.plugins.ssh: --ssh-key-file-path begins with a slash"
        if len(_secret(job)) > _LABEL_MAX or "." in job.metadata.name:
            yield (
                f"metadata.name: plugin ssh makes a volume {_secret(job)!r}, 63 letters at most and"
                " no dots"
            )

    @override
    def companions(self, job: Job, arguments: Sequence[str]) -> Sequence[Companion]:
        """Return the Secret, without keys when the user gave none."""
        flags = parse(arguments, self.flags)
        body = {"data": {"config": _base64(_config(job, flags["ssh-port"]))}}
        private, public = str(flags["ssh-private-key"]), str(flags["ssh-public-key"])
        if private:
            body = with_keys(body, KeyPair(private=private, public=public))
        return [
            Companion(
                kind=kinds.SECRET,
                name=_secret(job),
                body=body,
                once=True,
                sealed=True,
                needs_key_pair=not private,
            )
        ]

    @override
    def edit_task(self, pod: PodBody, job: Job, task: TaskSpec, arguments: Sequence[str]) -> None:
        """Mount the files into every container."""
        del task
        path = parse(arguments, self.flags)["ssh-key-file-path"]
        name = _secret(job)
        secret = {
            "secretName": name,
            "items": [{"key": file, "path": f"{FOLDER}/{file}"} for file in FILES],
            "defaultMode": _OWNER_ONLY if path == HOME else _READABLE,
        }
        add(pod["spec"], "volumes", {"name": name, "secret": secret})
        for container in containers(pod):
            mount = {"name": name, "mountPath": path, "subPath": FOLDER}
            add(container, "volumeMounts", mount)


def with_keys(body: Mapping[str, Any], pair: KeyPair) -> dict[str, Any]:
    """Return the body of the Secret with a key pair in it."""
    public = _base64(pair.public)
    files = {"id_rsa": _base64(pair.private), "id_rsa.pub": public, "authorized_keys": public}
    return {**body, "data": {**body["data"], **files}}


def _secret(job: Job) -> str:
    return f"{job.metadata.name}-ssh"


def _config(job: Job, port: Value) -> str:
    """Return the client's configuration; pods are born and die, so their host keys say nothing."""
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in job.spec.tasks:
        for host in hosts.distinct(job, task):
            lines += [f"Host {host.name}", f"  HostName {host}", f"  Port {port}"]
    return "".join(f"{line}\n" for line in lines)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
