"""Streams and durable consumers as declared: made or changed without losing what they hold.

`ensure` is idempotent and safe to call from several processes at once. A server restart empties
memory streams; the declarer makes them again on the next connection (`DeclaredStreams`), and
readers see by its `created` time that it is another stream. Services only check whether what they
need is there (`unfit`).
"""

import asyncio
from typing import Any, Final

import msgspec

from shared.bus.api import (
    CONSUMER_NOT_FOUND,
    NAME_IN_USE,
    STREAM_NOT_FOUND,
    Api,
    ApiError,
    ConsumerReply,
    StreamReply,
    failure,
)
from shared.contracts.streams import ConsumerSpec, StreamSpec
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.logs import Logger

NANO: Final = 1_000_000_000
FIXED: Final = ("storage", "retention")
"""Settings that the server cannot change on an existing stream."""
NEEDED: Final = (
    "subjects",
    "retention",
    "discard",
    "max_msgs_per_subject",
    "allow_msg_ttl",
    "allow_direct",
)
"""Settings without which a promise does not hold; sizes and ages are the operator's."""
STRANGE: Final = ("mirror", "sources", "republish", "subject_transform", "sealed")
"""Settings that take messages from elsewhere, or send them there."""
RETRY_S: Final = 0.2


def config_of(spec: StreamSpec) -> dict[str, Any]:
    """Return the server's configuration for a declaration."""
    window_s = spec.duplicate_window_s
    if spec.max_age_s > 0:
        window_s = min(window_s, spec.max_age_s)  # the server refuses a longer window
    config: dict[str, Any] = {
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
        "allow_rollup_hdrs": spec.allow_rollup,
        "allow_direct": True,
        "max_consumers": spec.max_consumers,
        "num_replicas": spec.replicas,
    }
    if spec.republish:
        source, destination = spec.republish
        config["republish"] = {"src": source, "dest": destination}
    if not spec.acknowledges:
        config["no_ack"] = True
    if spec.takes_batches:
        config["allow_atomic"] = spec.replicas > 1
    return config


def consumer_config_of(spec: ConsumerSpec) -> dict[str, Any]:
    """Return the server's configuration for the declaration of a durable consumer."""
    return {
        "durable_name": spec.durable,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": int(spec.ack_wait_s * NANO),
        "max_deliver": -1,
        "max_ack_pending": spec.max_ack_pending,
        "filter_subjects": [spec.filter_subject],
        "num_replicas": 0,  # as many as its stream has: a work queue takes no other number
    }


async def unfit(api: Api, spec: StreamSpec) -> str:
    """Return why a stream does not serve as declared, or ""."""
    about = f"stream {spec.name}"
    found = await api.call(f"STREAM.INFO.{spec.name}", None, StreamReply, about=about)
    if isinstance(found, ApiError):
        if found.err_code == STREAM_NOT_FOUND:
            return f"{about} is missing, the declarer makes it"
        raise failure(found, about=about)
    desired = config_of(spec)
    for key in NEEDED:
        if (is_now := found.config.get(key, False)) != desired[key]:
            return f"{about} has {key} {is_now!r} and needs {desired[key]!r}"
    strange = [key for key in STRANGE if (found.config.get(key) or None) != desired.get(key)]
    return f"{about} has {', '.join(strange)}, which the declarer never sets" if strange else ""


async def ensure_consumer(api: Api, spec: ConsumerSpec) -> bool:
    """Make a durable consumer, or bring it to its declaration; return whether it changed."""
    desired = consumer_config_of(spec)
    about = f"consumer {spec.durable} of {spec.stream}"
    operation = f"CONSUMER.INFO.{spec.stream}.{spec.durable}"
    found = await api.call(operation, None, ConsumerReply, about=about)
    if isinstance(found, ApiError) and found.err_code != CONSUMER_NOT_FOUND:
        raise failure(found, about=about)
    if isinstance(found, ConsumerReply) and all(
        found.config.get(key) == value for key, value in desired.items()
    ):
        return False
    await api.make_consumer(spec.stream, spec.durable, desired)
    return True


async def ensure(api: Api, spec: StreamSpec) -> bool:
    """Create the stream, or bring it to its declaration; return whether anything was changed.

    Raises Rejected when a setting differs that cannot be changed, and Retryable.
    """
    desired = config_of(spec)
    about = f"stream {spec.name}"
    found = await api.call(f"STREAM.INFO.{spec.name}", None, StreamReply, about=about)
    if isinstance(found, ApiError):
        if found.err_code != STREAM_NOT_FOUND:
            raise failure(found, about=about)
        made = await api.call(f"STREAM.CREATE.{spec.name}", desired, StreamReply, about=about)
        if not isinstance(made, ApiError):
            return True
        if made.err_code != NAME_IN_USE:
            raise failure(made, about=about)
        found = await api.stream(spec.name)
    return await _update(api, spec, desired, found)


async def _update(api: Api, spec: StreamSpec, desired: dict[str, Any], found: StreamReply) -> bool:
    if found.replicas > spec.replicas:  # an operator may keep more copies
        desired = config_of(msgspec.structs.replace(spec, replicas=found.replicas))
    desired["max_consumers"] = found.config.get("max_consumers", -1)  # fixed when it was made
    differing = [key for key, value in desired.items() if found.config.get(key, False) != value]
    if not differing:
        return False
    for key in FIXED:
        if key in differing:
            raise Rejected(
                f"stream {spec.name} has {key} {found.config.get(key)!r} and needs "
                f"{desired[key]!r}, which cannot be changed: use another cluster name, or remove "
                f"the stream by hand",
                field=key,
            )
    config = {**found.config, **{key: desired[key] for key in differing}}
    updated = await api.call(
        f"STREAM.UPDATE.{spec.name}", config, StreamReply, about=f"stream {spec.name}"
    )
    if isinstance(updated, ApiError):
        raise failure(updated, about=f"stream {spec.name}")
    return True


class DeclaredStreams:
    """Declares again what this process has declared, after restarts of the server."""

    def __init__(self, api: Api, *, clock: Clock, log: Logger) -> None:
        self._api = api
        self._clock = clock
        self._log = log
        self._specs: dict[str, StreamSpec] = {}
        self._consumers: dict[tuple[str, str], ConsumerSpec] = {}
        self._due = asyncio.Event()

    async def declare(self, specs: tuple[StreamSpec, ...]) -> None:
        """Ensure the streams now, and remember them."""
        for spec in specs:
            self._specs[spec.name] = spec
            if await ensure(self._api, spec):
                self._log.info("stream_declared", stream=spec.name)

    async def declare_consumers(self, specs: tuple[ConsumerSpec, ...]) -> None:
        """Ensure the durable consumers now, and remember them."""
        for spec in specs:
            self._consumers[spec.stream, spec.durable] = spec
            if await ensure_consumer(self._api, spec):
                self._log.info("consumer_declared", consumer=spec.durable)

    def check_soon(self) -> None:
        """Check again soon: there is a new connection, or a stream was missed."""
        self._due.set()

    async def run(self) -> None:
        """Ensure what is remembered whenever `check_soon` was called, until it works."""
        while True:
            await self._due.wait()
            self._due.clear()
            declared: list[StreamSpec | ConsumerSpec] = [*self._specs.values()]
            for spec in (*declared, *self._consumers.values()):
                await self._ensure_with_retries(spec)

    async def _ensure_with_retries(self, spec: StreamSpec | ConsumerSpec) -> None:
        kind, name = (
            ("stream", spec.name) if isinstance(spec, StreamSpec) else ("consumer", spec.durable)
        )
        about = {kind: name}
        while True:
            try:
                if await self._ensured(spec):
                    self._log.warning(f"{kind}_made_again", **about)
            except Rejected as exc:
                self._log.error(f"{kind}_refused", reason=str(exc), **about)
                return
            except Retryable as exc:
                self._log.info(f"{kind}_delayed", reason=str(exc), **about)
                await self._clock.sleep(RETRY_S)
                if self._due.is_set():
                    return  # a new connection: begin again with the first stream
            else:
                return

    async def _ensured(self, spec: StreamSpec | ConsumerSpec) -> bool:
        if isinstance(spec, StreamSpec):
            return await ensure(self._api, spec)
        return await ensure_consumer(self._api, spec)
