"""Starts Volcano or Pumice on a control plane, with or without webhooks.

Volcano's programs are built from a checkout of its repository. Its webhooks are those of the
checkout's chart.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from pumice.local.authority import Authority, pair
from pumice.local.control_plane import ControlPlane
from pumice.local.ports import LOOPBACK, free_port
from pumice.local.process import Process, ProcessSpec, go_environ
from pumice.local.services import InProcessServices, ServiceSettings
from tests.support.api import Api, connect
from tests.support.fleet import SERVICES, fleet
from tests.support.goprograms import from_checkout, helm
from tests.support.wait import until

CRDS: Final = Path(__file__).parents[2] / "k8s" / "crds"
MANY_REQUESTS: Final = ("--kube-api-qps=2000", "--kube-api-burst=2000")
"""Flags of Volcano's programs that allow 2,000 requests a second to each."""
_PROGRAMS: Final = {
    "vc-scheduler": "./cmd/scheduler",
    "vc-controller-manager": "./cmd/controller-manager",
    "vc-webhook-manager": "./cmd/webhook-manager",
}
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


class Running(NamedTuple):
    """A system that is ready."""

    pids: dict[str, int]
    """Name of a process → its id; `replace_scheduler` writes the new one."""
    replace_scheduler: Callable[[], Awaitable[None]]
    """Kills the scheduler (SIGKILL) and starts another one at once."""


System = Callable[[ControlPlane, Path, str], AbstractAsyncContextManager[Running]]
"""Control plane, folder for logs and files, scheduler configuration or "" → the system."""


def pumice(*, webhooks: bool = True) -> System:
    """Return Pumice with a process per service."""

    @asynccontextmanager
    async def system(plane: ControlPlane, folder: Path, conf: str) -> AsyncIterator[Running]:
        await plane.apply_crds(CRDS)
        named = {"scheduler_conf": _written(folder / "scheduler.yaml", conf)} if conf else {}
        async with fleet(plane, folder, forked=False) as services:
            started = await services.start_all(*(name for name in SERVICES if name != "scheduler"))
            started["scheduler"] = await services.start("scheduler", **named)
            if webhooks:
                port = str(free_port())
                where = {"port": port, "bind_address": LOOPBACK}
                url = f"https://{LOOPBACK}:{port}"
                started["admission"] = await services.start("admission", webhook_url=url, **where)
            pids = {name: service.process.pid for name, service in started.items()}
            pids["nats-server"] = plane.processes["nats-server"].pid

            async def replace_scheduler() -> None:
                started["scheduler"].kill()
                started["scheduler"] = await services.start(
                    "scheduler", instance="b", wait=False, **named
                )
                pids["scheduler"] = started["scheduler"].process.pid

            yield Running(pids, replace_scheduler)

    return system


@asynccontextmanager
async def one_process(plane: ControlPlane, folder: Path, conf: str) -> AsyncIterator[Running]:
    """Run the core of Pumice in one process, with the bus in memory and without webhooks."""
    await plane.apply_crds(CRDS)
    flags: dict[str, tuple[str, ...]] = dict.fromkeys(SERVICES, ())
    if conf:
        file = _written(folder / "scheduler.yaml", conf)
        flags["scheduler"] = (f"--scheduler-conf={file}",)
    settings = ServiceSettings(
        kubeconfig=plane.kubeconfig, nats_url=f"nats://{LOOPBACK}:{free_port()}", logs=folder
    )
    together = InProcessServices(settings, folder / "bus", flags=flags)
    process = Process(msgspec.structs.replace(together.process.spec, nice=0))

    async def start() -> None:
        process.start()
        await process.ready(together.probe, deadline_s=60)

    pids: dict[str, int] = {}

    async def replace() -> None:
        process.kill()
        process.start()
        pids["services"] = process.pid

    await start()
    pids["services"] = process.pid
    try:
        yield Running(pids, replace)
    finally:
        await process.stop()


def volcano(
    checkout: Path, *, webhooks: bool = True, more_flags: tuple[str, ...] = MANY_REQUESTS
) -> System:
    """Return Volcano, built from a checkout. Go builds again only what changed there."""
    names = [name for name in _PROGRAMS if webhooks or name != "vc-webhook-manager"]
    programs = {name: from_checkout(name, _PROGRAMS[name], checkout) for name in names}
    hooks = _registrations(checkout) if webhooks else []
    folders_of_crds = sorted(checkout.glob("config/crd/*/bases"))

    @asynccontextmanager
    async def system(plane: ControlPlane, folder: Path, conf: str) -> AsyncIterator[Running]:
        for crds in folders_of_crds:
            await plane.apply_crds(crds)
        file = _written(folder / "scheduler.yaml", conf)
        common = (f"--kubeconfig={plane.kubeconfig}", *more_flags)
        flags: dict[str, tuple[str, ...]] = {
            "vc-controller-manager": ("--leader-elect=false", *_listening()),
            "vc-scheduler": ("--leader-elect=false", f"--scheduler-conf={file}", *_listening()),
        }
        port = free_port()
        if webhooks:
            flags["vc-webhook-manager"] = _serving(folder, port, hooks)
        running = {
            name: Process(
                ProcessSpec(
                    name=name,
                    argv=(str(programs[name]), *common, *flags[name]),
                    log=folder / f"{name}.log",
                    environ=go_environ(),
                )
            )
            for name in flags
        }
        async with connect(plane.kubeconfig) as api:
            await _register(api, hooks, port)
            pids: dict[str, int] = {}

            async def replace_scheduler() -> None:
                running["vc-scheduler"].kill()
                running["vc-scheduler"].start()
                pids["vc-scheduler"] = running["vc-scheduler"].pid

            try:
                for name in reversed(running):  # the scheduler ends if no webhook answers
                    running[name].start()
                    pids[name] = running[name].pid
                    if name == "vc-webhook-manager":
                        await until(lambda: _takes_connections(port), deadline_s=60)
                await until(lambda: _has_default_queue(api), deadline_s=60)
                yield Running(pids, replace_scheduler)
            finally:
                async with asyncio.TaskGroup() as tasks:
                    for process in running.values():
                        tasks.create_task(process.stop(grace_s=3), name=process.name)

    return system


async def _takes_connections(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


async def _has_default_queue(api: Api) -> bool:
    return any(queue["metadata"]["name"] == "default" for queue in await api.items("queues"))


def _written(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    return str(file)


def _listening() -> tuple[str, str]:
    return (
        f"--listen-address={LOOPBACK}:{free_port()}",
        f"--healthz-address={LOOPBACK}:{free_port()}",
    )


def _serving(folder: Path, port: int, hooks: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the flags of the webhook manager, whose certificate is made in a folder."""
    paths = ",".join(_path(hook) for document in hooks for hook in document["webhooks"])
    authority, files = Authority("benchmark"), pair(folder, "webhook")
    authority.issue(files, "webhook", hosts=[LOOPBACK])
    ca = _written(folder / "webhook-ca.crt", authority.certificate)
    return (
        f"--tls-cert-file={files.cert}",
        f"--tls-private-key-file={files.key}",
        f"--ca-cert-file={ca}",
        f"--listen-address={LOOPBACK}",
        f"--port={port}",
        f"--enabled-admission={paths}",
        f"--webhook-url=https://{LOOPBACK}:{port}",
    )


def _registrations(checkout: Path) -> list[dict[str, Any]]:
    """Return the webhook configurations of the checkout's chart."""
    chart = checkout / "installer" / "helm" / "chart" / "volcano"
    drawn = subprocess.run(
        [
            *(helm(), "template", "volcano", chart, "--namespace", "volcano-system"),
            *("--show-only", "templates/webhooks.yaml"),
        ],
        check=True,
        capture_output=True,
    )
    return [document for document in yaml.safe_load_all(drawn.stdout) if document]


async def _register(api: Api, hooks: list[dict[str, Any]], port: int) -> None:
    """Store webhook configurations that lead to a port of this machine."""
    for document in hooks:
        webhooks = [
            {**hook, "clientConfig": {"url": f"https://{LOOPBACK}:{port}{_path(hook)}"}}
            for hook in document["webhooks"]
        ]
        url = f"{_ADMISSION}/{document['kind'].lower()}s"
        await api.request("POST", url, {**document, "webhooks": webhooks})


def _path(hook: dict[str, Any]) -> str:
    return hook["clientConfig"]["service"]["path"]
