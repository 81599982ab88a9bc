"""The load of an attack: small gangs that come all the time, run for a second and end."""

import asyncio
import time

import aiohttp

from tests.attack.installations import AGENT, INSTALLATIONS, PLAIN, Installation
from tests.support import world
from tests.support.api import Api, ApiError

SIZE = 3
RUN_S = 1.0
PERIOD_S = 0.2
ALREADY_THERE = 409


class Load:
    """Submits a gang every period until it is told to stop; `posted` has their times."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        prefix: str,
        expect,
        period_s: float = PERIOD_S,
        *,
        on: Installation = INSTALLATIONS[PLAIN],
        ttl_s: int | None = None,
    ) -> None:
        """With `ttl_s` ended jobs are deleted after so long by the controller."""
        self._api = api
        self._namespace = namespace
        self._prefix = prefix
        self._expect = expect
        self._period_s = period_s
        self._on = on
        self._ttl_s = ttl_s
        self._over = False
        self.posted: dict[str, float] = {}
        """`namespace/name` to the monotonic time at which the API server had taken the job."""

    def stop(self) -> None:
        """Submit nothing more."""
        self._over = True

    async def run(self) -> None:
        """Submit gangs until stopped; each is tried until the API server takes it."""
        number = 0
        if self._on.burst:
            await self._submit(f"{self._prefix}-burst", self._on.burst)
        begin = time.monotonic()
        while not self._over:
            await self._submit(f"{self._prefix}-{number}", SIZE)
            if self._on.single_pods:
                await self._submit_single(f"{self._prefix}-s{number}")
            number += 1
            late_s = time.monotonic() - begin - number * self._period_s
            if late_s > self._period_s:  # the API server was away: no burst afterwards
                begin += late_s
            await asyncio.sleep(max(0.0, -late_s))

    async def _submit(self, name: str, size: int) -> None:
        notes = {"pumice.dev/run-seconds": str(RUN_S)}
        task = world.task("w", size, annotations=notes)
        lives = {} if self._ttl_s is None else {"ttlSecondsAfterFinished": self._ttl_s}
        await self._post("jobs", world.job(name, task, **lives), size)

    async def _submit_single(self, name: str) -> None:
        notes = {"pumice.dev/run-seconds": str(RUN_S)}
        anywhere = [{"operator": "Exists"}]
        pod = world.pod(
            name,
            cpu="1",
            scheduler=AGENT,
            annotations=notes,
            tolerations=anywhere,
            restartPolicy="Never",
        )
        await self._post("pods", pod, 1)

    async def _post(self, plural: str, body: dict, size: int) -> None:
        """Create an object, again and again until the API server has it."""
        key = f"{self._namespace}/{body['metadata']['name']}"
        self._expect(key, size)
        while key not in self.posted:
            try:
                async with asyncio.timeout(5):
                    await self._api.create(plural, body, self._namespace)
                self.posted[key] = time.monotonic()
            except ApiError as error:
                if error.status == ALREADY_THERE:  # taken, and the answer was lost
                    self.posted[key] = time.monotonic()
                else:
                    await asyncio.sleep(0.1)
            except (OSError, aiohttp.ClientError):  # TimeoutError is an OSError
                await asyncio.sleep(0.1)
