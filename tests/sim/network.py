"""Faults of the network between processes: slow, uneven, lossy, gone; all drawn from the seed."""

import random

from shared.kube.errors import Status, Unreachable, refusal
from shared.kube.wire import Request


class FaultyNetwork:
    """Delays on each connection to NATS and to the API server; `loses` is about acknowledgements.

    Connections keep their order; that two of them are delayed differently is what reorders.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.mean_s = 0.001
        self.spike_share = 0.0
        self.spike_s = 0.0
        self.lost_share = 0.0

    def delay_s(self) -> float:
        delay = self._rng.expovariate(1 / self.mean_s)
        if self.spike_share and self._rng.random() < self.spike_share:
            delay += self._rng.uniform(0, self.spike_s)
        return delay

    def loses(self, _subject: str, /) -> bool:
        return bool(self.lost_share) and self._rng.random() < self.lost_share

    def heal(self) -> None:
        self.mean_s, self.spike_share, self.spike_s, self.lost_share = 0.001, 0.0, 0.0, 0.0


class ApiFaults:
    """What the API server does to requests besides answering them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.refused_share = 0.0
        self.lost_share = 0.0
        """Share of requests that are done and whose answer never arrives."""
        self.away = False

    def check(self, request: Request) -> None:
        """Raise what the request meets instead of being done."""
        if self.away:
            raise Unreachable(f"{request.doing}: connection refused")
        if not self.refused_share or self._rng.random() >= self.refused_share:
            return
        codes = (429, 500, 503) if request.method in ("GET", "POST") else (409, 429, 500, 503)
        code = self._rng.choice(codes)
        status = Status(code=code, reason="Simulated", message=f"HTTP {code} of the simulation")
        raise refusal(request.doing, status, {"Retry-After": "1"} if code == 429 else {})

    def loses_answer(self) -> bool:
        return bool(self.lost_share) and self._rng.random() < self.lost_share

    def heal(self) -> None:
        self.refused_share, self.lost_share, self.away = 0.0, 0.0, False
