"""The way of one process to the API server in this process: `shared.kube.wire.Transport`."""

import asyncio
from collections.abc import Callable
from urllib.parse import unquote

from pumice.embedded.apiserver.replies import ApiReply
from pumice.embedded.apiserver.replies import ApiRequest as CoreRequest
from pumice.embedded.apiserver.watching import Watch
from shared.kube.errors import Silence, Unreachable, read_status, refusal
from shared.kube.wire import Request
from tests.sim.cluster import Judge
from tests.sim.network import ApiFaults, FaultyNetwork
from tests.sim.story import Story
from tests.support.api_server import ApiServer


class CoreStream:
    """A watch; ends when its time is up, breaks when the way is cut."""

    def __init__(self, watch: Watch, way: "CoreTransport", doing: str) -> None:
        self._watch = watch
        self._way = way
        self._doing = doing
        self._wake = asyncio.Event()
        self.cut = False
        watch.on_change(self._wake.set)

    async def read(self, *, silence_s: float) -> bytes:
        try:
            async with asyncio.timeout(silence_s):
                while True:
                    if self.cut:
                        raise Unreachable(f"{self._doing}: connection reset")
                    if events := self._watch.take():
                        await self._way.travel(self._doing)
                        return b"".join(events)
                    if self._watch.ended:
                        return b""
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError as exc:
            raise Silence(f"{self._doing}: no byte for {silence_s:g} s") from exc

    def break_off(self) -> None:
        self.cut = True
        self._wake.set()

    def close(self) -> None:
        self._watch.close()
        self._way.streams.pop(self, None)


class CoreTransport:
    """The requests of one process: once it is killed, they neither go out nor come back."""

    host = "sim"

    def __init__(
        self,
        server: ApiServer,
        *,
        who: str,
        network: FaultyNetwork,
        api: ApiFaults,
        story: Story,
        judge: Judge,
        alive: Callable[[], bool],
    ) -> None:
        self._server = server
        self._judge = judge
        self._who = who
        self._network = network
        self._api = api
        self._story = story
        self._alive = alive
        self.streams: dict[CoreStream, None] = {}
        self.open_way = asyncio.Event()
        """Cleared while nothing gets through."""
        self.open_way.set()

    async def exchange(self, request: Request) -> bytes:
        await self.travel(request.doing)
        self._api.check(request)
        finished = self._judge.finished_pod(request.doing)
        self._judge.asked(self._who, request)
        answer = self._server.handle(core_request(request))
        if finished and answer.status < 300 and self._who.startswith("binder"):
            self._judge.broken(finished, f"{finished} was evicted after it had finished")
        if request.method != "GET":
            self._story.tell(self._who, request.doing, status=answer.status, body=request.body)
        lost = self._api.loses_answer()
        await self.travel(request.doing)
        if lost:
            raise Unreachable(f"{request.doing}: connection reset")
        if answer.status >= 400:
            status = read_status(answer.status, answer.body)
            raise refusal(request.doing, status, answer.headers)
        return answer.body

    async def open(self, request: Request) -> CoreStream:
        await self.travel(request.doing)
        self._api.check(request)
        answer = self._server.handle(core_request(request))
        if isinstance(answer, ApiReply):
            raise refusal(request.doing, read_status(answer.status, answer.body), answer.headers)
        stream = CoreStream(answer, self, request.doing)
        self.streams[stream] = None
        return stream

    async def close(self) -> None:
        for stream in list(self.streams):
            stream.close()

    async def travel(self, doing: str) -> None:
        """Wait as long as the network takes; for ever once the process is dead."""
        if not self._alive():
            await asyncio.Event().wait()
        await self.open_way.wait()
        if self._api.away:
            await asyncio.sleep(self._network.delay_s())
            raise Unreachable(f"{doing}: connection refused")
        await asyncio.sleep(self._network.delay_s())
        await self.open_way.wait()
        if not self._alive():
            await asyncio.Event().wait()

    def break_watches(self) -> None:
        """Break the connection of each watch."""
        for stream in list(self.streams):
            stream.break_off()


def core_request(request: Request) -> CoreRequest:
    """Return a request in the form of the API server's core."""
    return CoreRequest(
        method=request.method,
        path=unquote(request.path),
        query=dict(request.query),
        headers={"content-type": request.content_type, "accept": "application/json"},
        body=request.body or b"",
    )
