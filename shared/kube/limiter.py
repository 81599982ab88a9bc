"""A bound on our own requests per second (Volcano's `--kube-api-qps`, `--kube-api-burst`).

Off by default: the API server protects itself (priority and fairness, 429), and a fixed rate in
the client only adds waiting. It is kept for clusters whose administrators want a bound.
"""

import asyncio


class RateLimiter:
    """Lets `burst` requests through at once, then `qps` per second, first come first served."""

    def __init__(self, *, qps: float, burst: int) -> None:
        self._interval_s = 1 / qps if qps > 0 else 0.0
        self._tolerance_s = self._interval_s * (max(burst, 1) - 1)
        self._due = 0.0

    async def admit(self) -> None:
        """Return when the next request may go out. A cancelled waiter's turn is not given back."""
        if not self._interval_s:
            return
        now = asyncio.get_running_loop().time()
        turn = max(self._due, now - self._tolerance_s)
        self._due = turn + self._interval_s
        wait_s = turn - now
        if wait_s > 0:
            await asyncio.sleep(wait_s)
