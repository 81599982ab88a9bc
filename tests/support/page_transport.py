"""The way of the live page to an API server that exists only as answers."""

import asyncio
import itertools
from collections.abc import Callable, Sequence

import msgspec

from shared.api.base import View
from shared.api.visibility import API_VERSION
from shared.api.whatifs import WhatIf, WhatIfSpec
from shared.kube.errors import Denied, Refused, Status, Vanished
from shared.kube.wire import Request
from tests.support.page_world import BASE, LISTS, WorldAnswers


class WorldTransport:
    """The way to an API server that has such answers; `may` is what its user may see."""

    def __init__(self, answers: WorldAnswers, *, may: Callable[[str], bool] = lambda _: True):
        self.answers = answers
        self._may = may
        self._versions = itertools.count(1)
        self.asked: list[Request] = []
        self.asked_what_ifs: list[WhatIfSpec] = []
        self.failure: Exception | None = None
        """Takes the place of each answer."""
        self.objects: dict[str, bytes] = {}
        """Objects of any kind by path: those that the user may get."""

    async def exchange(self, request: Request) -> bytes:
        """Return the answer to one request."""
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        if not request.path.startswith(BASE):
            return self._object(request)
        namespace, resource, name = self._read(request)
        answers = self.answers
        if resource in LISTS:
            return self._list(resource, await self._listing(resource, namespace))
        if resource == "whatifs":
            return await self._imagined(request, namespace)
        ask = answers.explanation if resource == "explanations" else answers.timeline
        found: View | None = await ask(namespace, name)
        if found is None:
            status = Status(code=404, message=f'{resource} "{name}" not found')
            raise Vanished(request.doing, status)
        return msgspec.json.encode(found)

    def _object(self, request: Request) -> bytes:
        if request.path not in self.objects:
            raise Denied(request.doing, Status(code=403, reason="Forbidden"))
        return self.objects[request.path]

    async def _imagined(self, request: Request, namespace: str) -> bytes:
        try:
            asked = msgspec.json.decode(request.body or b"", type=WhatIf)
        except msgspec.ValidationError as error:
            raise Refused(request.doing, Status(code=422, message=str(error))) from error
        self.asked_what_ifs.append(asked.spec)
        status = await self.answers.what_if(namespace, asked.spec)
        return msgspec.json.encode(msgspec.structs.replace(asked, status=status))

    async def open(self, request: Request) -> "WorldStream":
        """Return the stream of changes."""
        namespace, _, _ = self._read(request)
        return WorldStream(self.answers, namespace)

    def _read(self, request: Request) -> tuple[str, str, str]:
        parts = request.path.removeprefix(BASE).split("/")
        namespace, parts = (parts[1], parts[2:]) if parts[0] == "namespaces" else ("", parts)
        if not self._may(namespace):
            words = f'{parts[0]} is forbidden: User "ann" cannot list resource "{parts[0]}"'
            raise Denied(request.doing, Status(code=403, reason="Forbidden", message=words))
        return namespace, parts[0], parts[1] if len(parts) > 1 else ""

    async def _listing(self, resource: str, namespace: str) -> Sequence[View]:
        match resource:
            case "pendingjobs":
                return await self.answers.pending_jobs(namespace)
            case "runningjobs":
                return await self.answers.running_jobs(namespace)
            case "queuetrees":
                return await self.answers.queue_trees()
            case "usagehistories":
                return [await self.answers.usage_history()]
        return await self.answers.node_uses()

    def _list(self, resource: str, objects: Sequence[View]) -> bytes:
        version = str(next(self._versions))
        items = [msgspec.to_builtins(each) for each in objects]
        for item in items:
            item["metadata"]["resourceVersion"] = version
        head = {"kind": f"{LISTS[resource]}List", "apiVersion": API_VERSION}
        return msgspec.json.encode(
            {**head, "metadata": {"resourceVersion": version}, "items": items}
        )


class WorldStream:
    """The stream of changes as the service writes it."""

    def __init__(self, answers: WorldAnswers, namespace: str) -> None:
        self._answers, self._namespace = answers, namespace
        # From now on: the page says that it is live before it has read anything.
        self._changes = answers.follow(namespace)
        self._begun = False

    async def read(self, *, silence_s: float) -> bytes:
        """Return the next event."""
        if not self._begun:
            self._begun = True
            return b": follows\n\n"
        async with asyncio.timeout(silence_s):
            change = await self._changes.get()
        if change is None:
            return b""
        name = "happened" if change.entry else "changed"
        return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(change))

    def close(self) -> None:
        """Follow no longer."""
        self._answers.leave(self._namespace, self._changes)
