"""Streams as declared: created or updated without ever losing what they hold.

`ensure` is idempotent and safe to call from several processes at once. A server restart empties
memory streams; the process that declared one makes it again on the next connection (`Keeper`),
and readers see by its `created` time that it is another stream.
"""

import asyncio
from typing import Any, Final

from shared.bus.api import NAME_IN_USE, STREAM_NOT_FOUND, Api, ApiError, StreamAnswer, failure
from shared.contracts.streams import StreamSpec
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.logs import Logger

NANO: Final = 1_000_000_000
FIXED: Final = ("storage", "retention")
"""Settings that the server cannot change on an existing stream."""
RETRY_S: Final = 0.2


def config_of(spec: StreamSpec) -> dict[str, Any]:
    """Return the server's configuration for a declaration."""
    window_s = spec.duplicate_window_s
    if spec.max_age_s > 0:
        window_s = min(window_s, spec.max_age_s)  # the server refuses a longer window
    return {
        "name": spec.name,
        "subjects": list(spec.subjects),
        "storage": spec.storage.value,
        "retention": spec.retention.value,
        "discard": spec.discard.value,
        "max_msgs_per_subject": spec.max_msgs_per_subject,
        "max_bytes": spec.max_bytes,
        "max_age": int(spec.max_age_s * NANO),
        "duplicate_window": int(window_s * NANO),
        "allow_msg_ttl": spec.allow_msg_ttl,
        "allow_direct": True,
        "num_replicas": 1,
    }


async def ensure(api: Api, spec: StreamSpec) -> bool:
    """Create the stream, or bring it to its declaration; return whether anything was changed.

    Raises Rejected when a setting differs that cannot be changed, and Retryable.
    """
    wanted = config_of(spec)
    about = f"stream {spec.name}"
    found = await api.call(f"STREAM.INFO.{spec.name}", None, StreamAnswer, about=about)
    if isinstance(found, ApiError):
        if found.err_code != STREAM_NOT_FOUND:
            raise failure(found, about=about)
        made = await api.call(f"STREAM.CREATE.{spec.name}", wanted, StreamAnswer, about=about)
        if not isinstance(made, ApiError):
            return True
        if made.err_code != NAME_IN_USE:
            raise failure(made, about=about)
        found = await api.stream(spec.name)
    return await _update(api, spec, wanted, found)


async def _update(api: Api, spec: StreamSpec, wanted: dict[str, Any], found: StreamAnswer) -> bool:
    differing = [key for key, value in wanted.items() if found.config.get(key, False) != value]
    if "num_replicas" in differing:
        differing.remove("num_replicas")  # an operator may replicate on a cluster of servers
    if not differing:
        return False
    for key in FIXED:
        if key in differing:
            raise Rejected(
                f"stream {spec.name} has {key} {found.config.get(key)!r} and needs "
                f"{wanted[key]!r}, which cannot be changed: use another cluster name, or remove "
                f"the stream by hand",
                field=key,
            )
    config = {**found.config, **{key: wanted[key] for key in differing}}
    updated = await api.call(
        f"STREAM.UPDATE.{spec.name}", config, StreamAnswer, about=f"stream {spec.name}"
    )
    if isinstance(updated, ApiError):
        raise failure(updated, about=f"stream {spec.name}")
    return True


class Keeper:
    """Keeps the streams of this process's declarations in being, over restarts of the server."""

    def __init__(self, api: Api, *, clock: Clock, log: Logger) -> None:
        self._api = api
        self._clock = clock
        self._log = log
        self._specs: dict[str, StreamSpec] = {}
        self._due = asyncio.Event()

    async def declare(self, specs: tuple[StreamSpec, ...]) -> None:
        """Ensure the streams now, and remember them."""
        for spec in specs:
            self._specs[spec.name] = spec
            if await ensure(self._api, spec):
                self._log.info("stream_declared", stream=spec.name)

    def poke(self) -> None:
        """Look again soon: there is a new connection, or a stream was missed."""
        self._due.set()

    async def run(self) -> None:
        """Ensure the remembered streams whenever poked, until it works."""
        while True:
            await self._due.wait()
            self._due.clear()
            for spec in tuple(self._specs.values()):
                await self._ensure_at_last(spec)

    async def _ensure_at_last(self, spec: StreamSpec) -> None:
        while True:
            try:
                if await ensure(self._api, spec):
                    self._log.warning("stream_made_again", stream=spec.name)
            except Rejected as exc:
                self._log.error("stream_refused", stream=spec.name, reason=str(exc))
                return
            except Retryable as exc:
                self._log.info("stream_delayed", stream=spec.name, reason=str(exc))
                await self._clock.sleep(RETRY_S)
                if self._due.is_set():
                    return  # a new connection: begin again with the first stream
            else:
                return
