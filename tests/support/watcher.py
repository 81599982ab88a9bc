"""The judge of the restart tests: watches the API server alone and checks every event."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.api import Api, ApiError
from tests.support.invariants import Invariants


class Watcher(Invariants):
    """Follows pods and nodes of one cluster; `violations` lists what was broken, with the event."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api
        self.events = 0
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled; an API server that goes away is waited for."""
        await self.kept(self._list_and_watch)

    async def kept(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Call `follow` again each time it ends, or the API server goes away."""
        while True:
            try:
                await follow()
            except (ApiError, OSError, TimeoutError):
                await asyncio.sleep(0.1)
            except Exception as exc:
                if type(exc).__module__.split(".")[0] != "aiohttp":
                    raise
                await asyncio.sleep(0.1)

    async def _list_and_watch(self) -> None:
        for node in (await self._api.get("nodes"))["items"]:
            self.node(node)
        pods = await self._api.get("pods")
        self.listed(pods["items"])
        self.ready.set()
        async for event in self._api.watch("pods", rv=pods["metadata"]["resourceVersion"]):
            obj = event["object"]
            if event["type"] == "ERROR":
                return
            if event["type"] == "BOOKMARK":
                continue
            self.events += 1
            if event["type"] == "DELETED":
                self.gone(obj)
            else:
                self.pod(obj)
