"""Reconciles the HyperNodes: their counts of nodes, and those that are discovered (H01 to H04).

One key for all, like the queues: a HyperNode's count depends on those below it. A pass follows each
change of a node's labels or of a HyperNode, at most every half second; the configuration is read
again every ten seconds, and one that cannot be used leaves the one before in force.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import aiohttp
import msgspec
from typing_extensions import override

from services.controller.adapters.config_map import ConfigMapReader
from services.controller.adapters.reconciler import ControllerContext, SingletonReconciler
from services.controller.adapters.writer import apply
from services.controller.hypernode import config, discovery
from services.controller.hypernode.config import Discovery, UfmSource
from shared.api import kinds
from shared.api.kinds import Kind
from shared.api.patch import merge_patch
from shared.api.topology import HyperNode, HyperNodeStatus
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.kube.errors import AlreadyExists
from shared.model.hypernodes import Labels, forest
from shared.runtime.errors import Gone, Rejected, Retryable
from shared.runtime.workqueue import WorkQueue

_STAGE: Final = "reconcile"
_REQUEUE_AFTER_S: Final = 60.0
"""Delay before a fabric manager is called again after a failure."""
_WRITERS: Final = 8


class HyperNodeReconciler(SingletonReconciler):
    """Reconciles all HyperNodes under one key; one replica at a time acts."""

    name = "network"
    watched: ClassVar[Sequence[Kind]] = (kinds.NODE, kinds.HYPERNODE)
    debounce_s = 0.5
    every_s = 10.5

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        self._kube = manager.kube
        self._quarantine = manager.env.quarantine
        named = manager.settings.topology_config_map
        at = named if "/" in named else f"{manager.namespace}/{named}"
        namespace, _ = split_key(at)
        hosts = frozenset(manager.settings.topology_hosts)
        bounds = config.DiscoveryBounds(namespace=namespace, hosts=hosts)
        self._file = ConfigMapReader(
            manager,
            at,
            key=config.KEY,
            name="topology",
            parse=lambda text: config.parse(text, bounds),
        )
        self._discovery = Discovery()
        self._ask_at = float("-inf")
        """Monotonic time at which the fabric manager is asked again."""
        self._ports: list[discovery.FabricPort] | None = None
        """Its last answer: a node that joins in between is placed by it."""

    @override
    async def reconcile_all(self) -> None:
        await self._read_config()
        labels = self._labels()
        if self._discovery.types is not None:
            desired = discovery.from_labels(self._discovery.types, labels)
            await self._follow(desired, source=discovery.LABEL_SOURCE)
        if self._discovery.ufm is not None:
            await self._query_fabric_manager(self._discovery.ufm, labels)
        hypernodes = dict(self._informers.hypernodes.items())
        writes = [partial(self._write, *pair) for pair in statuses(hypernodes, labels)]
        await apply(writes, width=_WRITERS)

    async def _write(self, one: HyperNode, status: HyperNodeStatus) -> None:
        with self._quarantine.isolate(kinds.HYPERNODE.token, one.metadata.name, stage=_STAGE):
            await self._writer.patch_status(kinds.HYPERNODE, one.metadata, one.status, status)

    def _labels(self) -> dict[str, dict[str, str]]:
        nodes = self._informers.nodes.items()
        return {name: dict(node.metadata.labels) for name, node in nodes}

    # What is discovered

    async def _read_config(self) -> None:
        """Read the configuration; without one nothing is discovered, and what was found stays."""
        found = await self._file.changed()
        if not self._file.is_there:
            self._discovery = Discovery()
        if found is None:
            return
        self._discovery = found
        types = self._discovery.types
        self._log.info("topology_config_read", networks=sorted(types) if types else [])
        self._ask_at, self._ports = float("-inf"), None

    async def _query_fabric_manager(
        self, source: config.UfmSource, nodes: Mapping[str, object]
    ) -> None:
        """Update HyperNodes from the fabric manager; on a failure keep them and retry later."""
        now = self._clock.monotonic()
        if now >= self._ask_at:
            try:
                self._ports = await FabricManager(self._kube, source).ports()
                self._ask_at = now + source.interval_s
            except (Retryable, Rejected) as error:
                self._ask_at = now + min(source.interval_s, _REQUEUE_AFTER_S)
                self._log.warning("fabric_manager_not_read", reason=str(error))
        if self._ports is not None:
            desired = discovery.from_ports(self._ports, nodes.keys())
            await self._follow(desired, source=discovery.UFM_SOURCE)

    async def _follow(self, desired: Mapping[str, HyperNode], *, source: str) -> None:
        there = [one for _, one in self._informers.hypernodes.items()]
        create, change, delete = discovery.changes(desired, there, source=source)
        for one in create:
            await self._create(one)
        for old, new in change:
            labels = {"labels": dict(new.metadata.labels)}
            patch = {"metadata": labels, "spec": merge_patch(old.spec, new.spec)}
            await self._writer.patch(kinds.HYPERNODE, old.metadata, patch)
        for one in delete:
            await self._writer.delete(kinds.HYPERNODE, one.metadata)
            self._log.info("hypernode_deleted", hypernode=one.metadata.name)

    async def _create(self, one: HyperNode) -> None:
        try:
            await self._writer.create(kinds.HYPERNODE, "", kinds.encode(kinds.HYPERNODE, one))
        except AlreadyExists:
            self._log.warning("hypernode_name_taken", hypernode=one.metadata.name)
        else:
            self._log.info("hypernode_created", hypernode=one.metadata.name, tier=one.spec.tier)


def statuses(
    hypernodes: Mapping[str, HyperNode], nodes: Mapping[str, Labels]
) -> Iterator[tuple[HyperNode, HyperNodeStatus]]:
    """Yield the HyperNodes whose status differs, with the desired status.

    A node that is named but does not exist is not counted.
    """
    found = forest({name: one.spec for name, one in hypernodes.items()}, nodes)
    for name, one in sorted(hypernodes.items()):
        count = len(found.nodes.get(name, frozenset()) & nodes.keys())
        if count != one.status.node_count:
            conditions = one.status.conditions
            yield one, HyperNodeStatus(conditions=conditions, node_count=count)


_TIME_S: Final = 30.0
_LARGEST_BYTES: Final = 256 * 1024 * 1024
"""A fabric of 100,000 ports is some 150 MB."""
_CHUNK_BYTES: Final = 64 * 1024
_OK: Final = 200


class _Secret(msgspec.Struct, frozen=True, kw_only=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class FabricManager:
    """Asks a fabric manager for its ports (H03). User and password come from a Secret."""

    def __init__(self, kube: Kube, source: UfmSource, *, time_s: float = _TIME_S) -> None:
        """Limit a complete response to `time_s` seconds."""
        self._kube = kube
        self._source = source
        self._time_s = time_s

    async def ports(self) -> list[discovery.FabricPort]:
        """Return the computers' ports. Raises Retryable, or Rejected for bad credentials."""
        headers = {"Authorization": await self._authorization()}
        url = self._source.endpoint.rstrip("/") + discovery.PORTS_PATH
        timeout = aiohttp.ClientTimeout(total=self._time_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.get(
                    url, ssl=not self._source.insecure_skip_verify, allow_redirects=False
                ) as response,
            ):
                if response.status != _OK:
                    raise Retryable(f"{url} answered {response.status}")
                body = await _whole(response, url)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Retryable(f"{url}: {type(error).__name__} {error}") from error
        try:
            found = discovery.ports(body)
        except msgspec.DecodeError as error:
            raise Retryable(f"{url} answers no list of ports: {error}") from error
        if not found:  # a manager that starts has seen nothing yet: that is no news of the fabric
            raise Retryable(f"{url} names no computer")
        return found

    async def _authorization(self) -> str:
        namespace, name = split_key(self._source.secret)
        try:
            body = await self._kube.get(kinds.SECRET, namespace, name)
        except Gone as error:
            raise Retryable(f"there is no Secret {self._source.secret}") from error
        data = msgspec.json.decode(body, type=_Secret).data
        try:
            user, password = (
                base64.b64decode(data[key], validate=True).decode()
                for key in ("username", "password")
            )
        except (KeyError, ValueError) as error:
            raise Rejected(
                f"Secret {self._source.secret} needs username and password", field="data"
            ) from error
        return aiohttp.encode_basic_auth(user, password)


async def _whole(response: aiohttp.ClientResponse, url: str) -> bytes:
    """Return the body of a response, unless it is too large."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > _LARGEST_BYTES:
            raise Retryable(f"{url} answers more than {_LARGEST_BYTES} bytes")
    return bytes(body)
