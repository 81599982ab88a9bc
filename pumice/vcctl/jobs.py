"""The commands for jobs: run, list, view, suspend, resume, delete, and Slurm's names for them."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pumice.vcctl import documents, tables
from pumice.vcctl.cluster import ClusterClient
from pumice.vcctl.flags import CommandFailure, Value, number, text
from pumice.vcctl.shapes import shaped
from pumice.vcctl.view import described
from shared.api.kinds import EVENT, JOB
from shared.model.quantity import BadQuantity, canonical

_FROM_ENVIRONMENT: Final = {
    "scheduler": "VOLCANO_SCHEDULER_NAME",
    "image": "VOLCANO_DEFAULT_IMAGE",
    "namespace": "VOLCANO_DEFAULT_JOB_NAMESPACE",
}
"""Flags of `vsub` whose usual value a variable replaces."""
_USUAL: Final = {"scheduler": "volcano", "image": "busybox", "namespace": "default"}
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")


async def run(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Create a job from flags, or from a file, which replaces them all but the namespace (V01).

    Raises CommandFailure.
    """
    file = text(values, "filename")
    if not file and not text(values, "name"):
        raise CommandFailure("job name cannot be left blank")
    job = _from_file(file) if file else _made(values, [])
    return await _create(cluster, text(values, "namespace"), job)


async def submit(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Create a job from flags and variables (`vsub`). Raises CommandFailure."""
    if not text(values, "name"):
        raise CommandFailure("job name cannot be left blank")
    usual = {
        flag: os.environ.get(variable) or _USUAL[flag]
        for flag, variable in _FROM_ENVIRONMENT.items()
    }
    chosen = {**values, **{flag: values[flag] or word for flag, word in usual.items()}}
    job = _made(chosen, _split(text(values, "command")))
    return await _create(cluster, text(chosen, "namespace"), job)


async def show(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """List jobs; ⚠ `--selector` is a part of the name, not a label selector (V02)."""
    everywhere = bool(values["all-namespaces"])
    jobs = await cluster.items(JOB, "" if everywhere else text(values, "namespace"))
    selected = [job for job in jobs if _matches(job, values)]
    return tables.jobs(selected, everywhere=everywhere)


async def show_or_list(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Show one job, ⚠ without its conditions, or list them if none is named (`vjobs`)."""
    if text(values, "name"):
        return await _view(cluster, values, conditions=False)
    return await show(cluster, values)


async def view(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Show everything about one job, with its events. Raises CommandFailure."""
    if not text(values, "name"):
        missing = "job name (specified by --name or -N) is mandatory"
        raise CommandFailure(f"{missing} to view a particular job")
    return await _view(cluster, values)


async def suspend(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Order a job to stop."""
    return await _command(cluster, values, "suspend", "AbortJob")


async def resume(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Resume a job."""
    return await _command(cluster, values, "resume", "ResumeJob")


async def delete(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Delete a job."""
    return await _delete(cluster, values, "delete")


async def cancel(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """Delete a job (`vcancel`)."""
    return await _delete(cluster, values, "cancel")


async def _delete(cluster: ClusterClient, values: Mapping[str, Value], verb: str) -> str:
    name = _name(values, verb)
    await cluster.delete(JOB, text(values, "namespace"), name)
    return f"{verb} job {name} successfully\n"


async def _create(cluster: ClusterClient, namespace: str, job: documents.Object) -> str:
    made = await cluster.create(JOB, namespace, job)
    return f"run job {tables.meta(made, 'name')} successfully\n"


async def _command(
    cluster: ClusterClient, values: Mapping[str, Value], verb: str, action: str
) -> str:
    namespace = text(values, "namespace")
    await cluster.command(JOB, namespace, _name(values, verb), action, into=namespace)
    return ""


async def _view(
    cluster: ClusterClient, values: Mapping[str, Value], *, conditions: bool = True
) -> str:
    namespace, name = text(values, "namespace"), text(values, "name")
    job = await cluster.get(JOB, namespace, name)
    try:
        events = await cluster.items(EVENT, namespace)
    except CommandFailure as failure:  # who may see jobs need not see events
        events = []
        sys.stderr.write(f"Failed to list events: {failure}\n")
    own = [event for event in events if tables.meta(event, "name").startswith(f"{name}.")]
    return described(job, own, cluster.now_s, conditions=conditions)


def _name(values: Mapping[str, Value], verb: str) -> str:
    name = text(values, "name")
    if not name:
        raise CommandFailure(f"job name is mandatory to {verb} a particular job")
    return name


def _matches(job: Mapping[str, Any], values: Mapping[str, Value]) -> bool:
    spec = job.get("spec") or {}
    scheduler, queue = text(values, "scheduler"), str(values.get("queue", ""))
    return (
        scheduler in {"", spec.get("schedulerName", "")}
        and queue in {"", spec.get("queue", "")}
        and text(values, "selector") in tables.meta(job, "name")
    )


def _from_file(file: str) -> documents.Object:
    if Path(file).suffix not in {".yaml", ".yml"}:
        raise CommandFailure("only support yaml file")
    try:
        content = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise CommandFailure(f"failed to read file, err: open {file}: {reason}") from error
    try:
        return shaped(documents.first(content), JOB.kind)
    except CommandFailure as error:
        raise CommandFailure(f"failed to unmarshal file, err:  {error}") from error


def _made(values: Mapping[str, Value], command: Sequence[str]) -> documents.Object:
    """Return the job that the flags describe: one task of one container."""
    name = text(values, "name")
    resources = {
        field: amounts
        for field in ("requests", "limits")
        if (amounts := _amounts(text(values, field)))
    }
    container = {
        "image": text(values, "image"),
        "name": name,
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
    }
    if command:
        container["command"] = list(command)
    template = {
        "metadata": {"name": name, "labels": {"job.volcano.sh": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "metadata": {"name": name, "namespace": text(values, "namespace")},
        "spec": {
            "minAvailable": number(values, "min"),
            "schedulerName": text(values, "scheduler"),
            "tasks": [{"replicas": number(values, "replicas"), "template": template}],
        },
    }


def _amounts(words: str) -> dict[str, str]:
    """Return the amounts of `cpu=1,memory=2Gi`. Raises CommandFailure."""
    found = {}
    for pair in words.split(",") if words else ():
        name, equals, amount = pair.partition("=")
        if not equals or "=" in amount:
            raise CommandFailure(f"invalid argument syntax {pair}, expected <resource>=<value>")
        found[name] = _amount(amount)
    return found


def _amount(amount: str) -> str:
    try:
        if _QUANTITY.fullmatch(amount):
            return canonical(amount)
    except BadQuantity:
        pass
    form = r"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    raise CommandFailure(f"quantities must match the regular expression {form}")


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        raise CommandFailure("EOF found when expecting closing quote") from None
