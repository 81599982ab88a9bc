"""One side of the comparison and the requests that are sent to it; judges nothing."""

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from pumice.local import admin
from pumice.local.control_plane import ControlPlane
from tests.contract.apiserver.dialogue import Dialogue
from tests.support.stack import make_namespace
from tests.support.wait import until


class Namespaces:
    """The namespaces of one server."""

    BATCH = 48

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._ready: list[str] = []

    async def take(self) -> str:
        """Return a fresh one. It is not deleted: its server ends soon, and has enough to do."""
        if not self._ready:
            await self._make()
        return self._ready.pop()

    async def _make(self) -> None:
        async with admin.connect(self._plane.url, self._plane.pki) as client:

            async def make() -> None:
                name = f"c-{secrets.token_hex(4)}"
                await make_namespace(client, self._plane, name, labels={"contract": "yes"})
                self._ready.append(name)

            async with asyncio.TaskGroup() as tasks:
                for number in range(self.BATCH):
                    tasks.create_task(make(), name=f"namespace-{number}")


REQUEST_S = 30.0
DEFAULTS = {"GET": None, "DELETE": "application/json", "PATCH": "application/merge-patch+json"}


class Answer:
    """A status and what came with it: the object, or text where it is no JSON."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body

    def __repr__(self) -> str:
        return f"{self.status}: {self.body!r}"[:2000]


class Side:
    """One API server."""

    def __init__(self, plane: ControlPlane, kind: str, session: aiohttp.ClientSession) -> None:
        self.plane = plane
        self.kind = kind
        self._session = session
        self._namespaces = Namespaces(plane)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        session: aiohttp.ClientSession | None = None,
    ) -> Answer:
        """Send one request; a text is sent as it is, anything else as JSON."""
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        given = {"Content-Type": DEFAULTS.get(method) or "application/json", **(headers or {})}
        async with (
            asyncio.timeout(REQUEST_S),
            (session or self._session).request(method, path, data=data, headers=given) as answer,
        ):
            return Answer(answer.status, _read(await answer.text()))

    async def events(self, path: str, count: int) -> Answer:
        """Watch until there were so many events, or the server ends the watch."""
        events: list[Any] = []
        async with asyncio.timeout(REQUEST_S), self._session.get(path) as answer:
            if answer.status != 200:
                return Answer(answer.status, _read(await answer.text()))
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                events += [json.loads(line) for line in lines]
                if len(events) >= count:
                    break
        return Answer(200, events[:count] if count else events)

    async def dialogue(self) -> Dialogue:
        """Return a dialogue in a namespace of its own."""
        return Dialogue(self._session, await self._namespaces.take())

    async def namespace(self, *, with_account: bool) -> str:
        """Make a namespace of one check; wait for its account where pods are made in it.

        It is not deleted. Its server ends soon, and the deletions of hundreds of namespaces kept
        kube-controller-manager from the one whose deletion is looked at.
        """
        name = f"like-{secrets.token_hex(4)}"
        made = await self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert made.status == 201, made
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"

        async def has_account() -> bool:
            return (await self.request("GET", account)).status == 200

        if with_account:
            await until(has_account, deadline_s=REQUEST_S, describe="the account of a namespace")
        return name


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@asynccontextmanager
async def opened(plane: ControlPlane, kind: str) -> AsyncIterator[Side]:
    """Open a session as the administrator."""
    tls = ssl.create_default_context(cafile=str(plane.pki.ca))
    async with aiohttp.ClientSession(
        plane.url,
        headers={"Authorization": f"Bearer {plane.token}"},
        connector=aiohttp.TCPConnector(ssl=tls, limit=16),
    ) as session:
        yield Side(plane, kind, session)
