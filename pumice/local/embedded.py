"""The API server's side of the local stack in one small process, and the choice between the two.

`EmbeddedPlane` runs `pumice.embedded.apiserver` in place of etcd, kube-apiserver, controllers and
KWOK. It needs no Go and is ready in a second; its objects are kept in a file of the data directory.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from typing_extensions import override

from pumice.local import admin, build, parts
from pumice.local.control_plane import Api, ControlPlane, ControlPlaneOptions
from pumice.local.process import Probe, Process, ProcessSpec
from shared.runtime.tasks import TaskGroup

NAME: Final = "apiserver"


class EmbeddedPlane(ControlPlane):
    """A `ControlPlane` whose API server, store, controllers and kubelets are one process."""

    api_program: ClassVar[str] = NAME
    node_program: ClassVar[str] = NAME

    @override
    def _programs(self) -> dict[str, Process]:
        argv = (
            *(sys.executable, "-P", "-m", "pumice.embedded.apiserver"),
            f"--directory={self.directory}",
            f"--port={self.port}",
            "--journal",
        )
        spec = ProcessSpec(name=NAME, argv=argv, log=self.logs / f"{NAME}.log")
        return {NAME: Process(spec)}

    @override
    async def _start_kubernetes(self) -> None:
        await self.start_program(NAME)

    @override
    def _probe(self, name: str, client: admin.Admin) -> Probe:
        return client.probe

    @override
    async def stop(self) -> None:
        """Stop both programs; one that is not gone after its grace is killed."""
        async with TaskGroup() as tasks:
            for name, process in self.processes.items():
                tasks.create_task(process.stop(grace_s=5.0), name=name)


def plane_of(options: ControlPlaneOptions, binaries: Mapping[str, Path]) -> ControlPlane:
    """Return the control plane for the options."""
    kind = EmbeddedPlane if options.api == "embedded" else ControlPlane
    return kind(options, binaries)


async def ensure(api: Api, report: build.Report) -> dict[str, Path]:
    """Return the programs that a control plane needs; those of the real one are built if missing.

    Raises LocalError when one is missing and cannot be built.
    """
    if api == "embedded":
        return parts.require(["nats-server"])
    return await build.ensure(report)
