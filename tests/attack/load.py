"""The load of an attack: small gangs that come all the time, run for a second and end."""

import asyncio
import time

import aiohttp

from tests.support import world
from tests.support.api import Api, ApiError

SIZE = 3
RUN_S = 1.0
PERIOD_S = 0.2
ALREADY_THERE = 409


class Load:
    """Submits a gang every period until it is told to stop; `posted` has their times."""

    def __init__(
        self, api: Api, namespace: str, prefix: str, expect, period_s: float = PERIOD_S
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._prefix = prefix
        self._expect = expect
        self._period_s = period_s
        self._over = False
        self.posted: dict[str, float] = {}
        """`namespace/name` to the monotonic time at which the API server had taken the job."""

    def stop(self) -> None:
        """Submit nothing more."""
        self._over = True

    async def run(self) -> None:
        """Submit gangs until stopped; each is tried until the API server takes it."""
        number = 0
        begin = time.monotonic()
        while not self._over:
            await self._submit(f"{self._prefix}-{number}")
            number += 1
            late_s = time.monotonic() - begin - number * self._period_s
            if late_s > self._period_s:  # the API server was away: no burst afterwards
                begin += late_s
            await asyncio.sleep(max(0.0, -late_s))

    async def _submit(self, name: str) -> None:
        notes = {"pumice.dev/run-seconds": str(RUN_S)}
        body = world.job(name, world.task("w", SIZE, annotations=notes))
        key = f"{self._namespace}/{name}"
        self._expect(key, SIZE)
        while key not in self.posted:
            try:
                async with asyncio.timeout(5):
                    await self._api.create("jobs", body, self._namespace)
                self.posted[key] = time.monotonic()
            except ApiError as error:
                if error.status == ALREADY_THERE:  # taken, and the answer was lost
                    self.posted[key] = time.monotonic()
                else:
                    await asyncio.sleep(0.1)
            except (OSError, aiohttp.ClientError):  # TimeoutError is an OSError
                await asyncio.sleep(0.1)
