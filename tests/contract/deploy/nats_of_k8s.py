"""nats-servers run with the very configuration, passwords and certificate of k8s."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client

from pumice.deploy import nats_config, nats_secrets
from pumice.events.tls import trusting
from pumice.local.parts import nats_server_binary
from pumice.local.ports import free_port
from pumice.local.process import Process, ProcessSpec
from shared.contracts.permissions import inbox_prefix
from tests.support.manifests import BASE, OVERLAYS, build, named, overlay
from tools import write_manifests


def _placed(text: str, directory: Path) -> str:
    """Return a configuration with data and certificates in a directory."""
    text = text.replace('"/data"', f'"{directory}/data"')
    return text.replace(f'"{write_manifests.CERTIFICATE}/', f'"{directory}/')


class Server:
    """A nats-server with the configuration of the ConfigMap and the passwords of fresh Secrets."""

    config = "nats.conf"
    """File that the server starts with."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        text = named(build(BASE), "ConfigMap", "pumice-nats")["data"]["nats.conf"]
        # Ports and the directory are all that a test changes.
        text = _placed(text, directory)
        text = re.sub(r'"port": \d+', f'"listen": "127.0.0.1:{self.port}"', text)
        text = re.sub(r'"http_port": \d+', f'"http": "127.0.0.1:{free_port()}"', text)
        self.directory = directory
        self.ca = directory / "ca.crt"
        self.renew()
        secrets = nats_secrets.manifests(namespace="pumice-system", cluster="main")
        self.passwords = {
            s["stringData"]["username"]: s["stringData"]["password"]
            for s in secrets
            if "username" in s["stringData"]
        }
        (directory / "nats.conf").write_text(text)
        variables = {nats_config.password_variable(u): p for u, p in self.passwords.items()}
        self.process = Process(
            ProcessSpec(
                name="nats-server",
                argv=(str(nats_server_binary()), "-c", str(directory / self.config)),
                log=directory / "nats.log",
                environ={**variables, "PUMICE_NATS_SERVER_NAME": f"pumice-nats-{directory.name}"},
            )
        )

    def renew(self) -> None:
        """Put a new certificate of a new authority in place, as a renewed Secret does."""
        for name, content in nats_secrets.certificate("pumice-system")["stringData"].items():
            (self.directory / name).write_text(content)

    @property
    def url(self) -> str:
        """Address as the settings of k8s/base write it, but for the name."""
        return f"tls://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def user(self, name: str, refusals: list[str]) -> AsyncIterator[Client]:
        """Connect as a user; what the server refuses is added to `refusals`."""

        async def refused(error: Exception) -> None:
            refusals.append(str(error))

        client = await nats.connect(
            self.url,
            tls=trusting(str(self.ca)),
            user=name,
            password=self.passwords[name],
            error_cb=refused,
            inbox_prefix=inbox_prefix(name).encode(),
            allow_reconnect=False,
        )
        try:
            yield client
        finally:
            await client.close()

    async def start(self) -> None:
        """Start the server and wait until it listens."""
        self.process.start()

        async def probe() -> str:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            return ""

        await self.process.ready(probe, deadline_s=30)


@asynccontextmanager
async def running_server(directory: Path) -> AsyncIterator[Server]:
    """Run one server until the block ends."""
    server = Server(directory)
    await server.start()
    try:
        yield server
    finally:
        await server.process.stop()


class OneOfThree(Server):
    """A server with the configuration of the overlay, which finds the others at `ports`."""

    config = "nats-of-three.conf"

    def __init__(self, directory: Path, number: int, ports: Sequence[int]) -> None:
        directory.mkdir()
        super().__init__(directory)
        objects = overlay(OVERLAYS / "nats-of-three")
        text = named(objects, "ConfigMap", "pumice-nats-of-three")["data"][self.config]
        text = text.replace("0.0.0.0:6222", f"127.0.0.1:{ports[number]}")
        for peer, port in enumerate(ports):
            text = text.replace(
                f"{nats_secrets.server_address(peer, 'pumice-system')}:6222", f"localhost:{port}"
            )
        (directory / self.config).write_text(_placed(text, directory))

    def same_certificate(self, other: Server) -> None:
        """Take over another server's certificate, as pods of one StatefulSet share a Secret."""
        for name in ("ca.crt", "tls.crt", "tls.key"):
            (self.directory / name).write_text((other.directory / name).read_text())
