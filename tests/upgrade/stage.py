"""A real control plane with the manifests of one release, which can be changed for another's."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pumice.local import parts
from pumice.local.control_plane import Api, ControlPlane, ControlPlaneOptions
from pumice.local.embedded import plane_of
from pumice.local.nats import NatsServer
from tests.support import roles
from tests.upgrade.release import Release

CLUSTER = "local"  # the default of the services' flag `--cluster`


class ReleaseNats(NatsServer):
    """A nats-server with the accounts and users of one release; a restart may take another's."""

    def __init__(self, directory: Path, release: Release) -> None:
        super().__init__(
            binary=parts.nats_server_binary(), directory=directory, cluster=CLUSTER, declares=False
        )
        self.release = release

    def _configuration(self) -> str:
        document = json.loads(super()._configuration())
        document["accounts"] = self.release.accounts(CLUSTER, self.passwords)
        return json.dumps(document, indent=1)


class Stage:
    """The control plane, and the release whose CRDs, roles and NATS accounts it has."""

    def __init__(self, plane: ControlPlane, nats: ReleaseNats, *, has_accounts: bool) -> None:
        self.plane = plane
        self.nats = nats
        self.has_accounts = has_accounts

    async def manifests(self, release: Release) -> None:
        """Apply the CRDs of a release, and its roles where services have accounts."""
        await self.plane.apply_crds(release.source / "k8s" / "crds")
        if self.has_accounts:
            await roles.apply_roles(self.plane, release.base)

    async def restart_nats(self, release: Release) -> None:
        """Restart NATS with the accounts of a release."""
        self.nats.release = release
        await self.nats.restart()


@asynccontextmanager
async def stage(directory: Path, release: Release, api: Api = "real") -> AsyncIterator[Stage]:
    """Open a control plane as a release has it; no nodes and services yet.

    The real one keeps an audit log, and its services have their accounts.
    """
    real = api == "real"
    options = ControlPlaneOptions(directory=directory, cluster=CLUSTER, api=api, audit_log=real)
    plane = plane_of(options, parts.require(parts.PARTS if real else ["nats-server"]))
    if real:
        roles.make_accounts(plane)
    nats = ReleaseNats(directory / "nats", release)
    plane.nats = nats
    plane.processes["nats-server"] = nats.process
    async with plane:
        on = Stage(plane, nats, has_accounts=real)
        await on.manifests(release)
        yield on
