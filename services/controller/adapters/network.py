"""Keeps the HyperNodes: their counts of nodes, and those that are discovered (H01 to H04).

One key for all, like the queues: a HyperNode's count depends on those below it. A look follows each
change of a node's labels or of a HyperNode, at most every half second; the configuration is read
again every ten seconds, and one that cannot be used leaves the one before in force.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from services.controller.adapters.objects import Objects, Taken
from services.controller.adapters.ownership import Ownership
from services.controller.adapters.recorder import Recorder
from services.controller.adapters.replica import Replica
from services.controller.adapters.together import all_of
from services.controller.adapters.touched import Touched
from services.controller.adapters.ufm import FabricManager
from services.controller.hypernode import config, discovery, ufm
from services.controller.hypernode.config import Discovery
from services.controller.hypernode.status import statuses
from shared.api import kinds
from shared.api.meta import ObjectMeta
from shared.api.patch import merge_patch
from shared.api.topology import HyperNode, HyperNodeStatus
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.clock import Clock
from shared.runtime.errors import Conflict, Gone, Rejected, Retryable
from shared.runtime.logs import Logger
from shared.runtime.tasks import sleep_or_event

_KEY: Final = "network"
_READ_AGAIN_S: Final = 10.0
_CALM_S: Final = 0.5
_ASK_AGAIN_S: Final = 60.0
"""A fabric manager that did not answer is asked again so much later, or when it is due."""
_WRITERS: Final = 8
_WATCHED: Final = frozenset({kinds.NODE.token, kinds.HYPERNODE.token})


class _ConfigMap(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class NetworkKeeper:
    """A part of the service; one replica at a time acts."""

    name: Final = "network"

    def __init__(
        self,
        kube: Kube,
        objects: Objects,
        replica: Replica,
        *,
        config_map: str,
        ownership: Ownership,
        is_synced: Callable[[], bool],
        recorder: Recorder,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._objects = objects
        self._replica = replica
        self._config_map = config_map
        self._ownership = ownership
        self._is_synced = is_synced
        self._recorder = recorder
        self._clock = clock
        self._log = log
        self._poked = asyncio.Event()
        self._discovery = Discovery()
        self._text = ""
        self._ask_at = float("-inf")
        """Monotonic time at which the fabric manager is asked again."""
        self._ports: list[ufm.Port] | None = None
        """Its last answer: a node that joins in between is placed by it."""
        ownership.on_change(lambda _: self.touch_all())

    def touch(self, touched: Touched) -> None:
        """Have the network looked at when a node or a HyperNode changed."""
        if any(place.token in _WATCHED for place in touched.others):
            self.touch_all()

    def touch_all(self) -> None:
        """Have the network looked at."""
        self._poked.set()

    async def run(self) -> None:
        """Keep the network for ever."""
        while True:
            await sleep_or_event(self._clock, _READ_AGAIN_S, self._poked)
            await self._clock.sleep(_CALM_S)
            self._poked.clear()
            if not self._is_synced() or not self._ownership.owns(_KEY):
                continue
            try:
                with self._ownership.looking(_KEY):
                    await self._look()
            except (Retryable, Conflict, Rejected) as error:
                self._log.warning("network_not_kept", reason=str(error))

    async def _look(self) -> None:
        await self._read_config()
        labels = self._labels()
        if self._discovery.types is not None:
            wanted = discovery.discovered(self._discovery.types, labels)
            await self._bring_about(wanted, source=discovery.SOURCE)
        if self._discovery.ufm is not None:
            await self._ask_fabric_manager(self._discovery.ufm, labels)
        hypernodes = dict(self._replica.holdings.hypernodes.items())
        writes = [partial(self._write, *pair) for pair in statuses(hypernodes, labels)]
        await all_of(writes, width=_WRITERS)

    async def _write(self, one: HyperNode, status: HyperNodeStatus) -> None:
        await self._objects.write_status(kinds.HYPERNODE, one.metadata, one.status, status)

    def _labels(self) -> dict[str, dict[str, str]]:
        nodes = self._replica.holdings.nodes.items()
        return {name: dict(node.metadata.labels) for name, node in nodes}

    # What is discovered

    async def _read_config(self) -> None:
        """Read the configuration; without one nothing is discovered, and what was found stays."""
        namespace, name = split_key(self._config_map)
        try:
            answer = await self._kube.get(kinds.CONFIGMAP, namespace, name)
        except Gone:
            self._discovery, self._text = Discovery(), ""
            return
        except Rejected as error:
            self._log.warning("topology_config_not_read", reason=str(error))
            return
        found = msgspec.json.decode(answer, type=_ConfigMap)
        text = found.data.get(config.KEY, "")
        if text == self._text:
            return
        self._text = text
        try:
            self._discovery = config.parse(text)
        except config.BadConfigError as error:
            self._log.warning("topology_config_refused", reason=str(error))
            self._recorder.tell_of(
                kinds.CONFIGMAP, found.metadata, "InvalidConfig", str(error), warning=True
            )
            return
        types = self._discovery.types
        self._log.info("topology_config_read", networks=sorted(types) if types else [])
        self._ask_at, self._ports = float("-inf"), None

    async def _ask_fabric_manager(
        self, source: config.UfmSource, nodes: Mapping[str, object]
    ) -> None:
        """Follow the fabric; one that does not answer leaves what was found, and is asked later."""
        now = self._clock.monotonic()
        if now >= self._ask_at:
            try:
                self._ports = await FabricManager(self._kube, source).ports()
                self._ask_at = now + source.interval_s
            except (Retryable, Rejected) as error:
                self._ask_at = now + min(source.interval_s, _ASK_AGAIN_S)
                self._log.warning("fabric_manager_not_read", reason=str(error))
        if self._ports is not None:
            wanted = ufm.discovered(self._ports, nodes.keys())
            await self._bring_about(wanted, source=ufm.SOURCE)

    async def _bring_about(self, wanted: Mapping[str, HyperNode], *, source: str) -> None:
        there = [one for _, one in self._replica.holdings.hypernodes.items()]
        create, change, delete = discovery.changes(wanted, there, source=source)
        for one in create:
            await self._create(one)
        for old, new in change:
            labels = {"labels": dict(new.metadata.labels)}
            patch = {"metadata": labels, "spec": merge_patch(old.spec, new.spec)}
            await self._objects.patch(kinds.HYPERNODE, old.metadata, patch)
        for one in delete:
            await self._objects.delete(kinds.HYPERNODE, one.metadata)
            self._log.info("hypernode_deleted", hypernode=one.metadata.name)

    async def _create(self, one: HyperNode) -> None:
        body = msgspec.json.decode(kinds.encode(kinds.HYPERNODE, one))
        try:
            await self._objects.create(kinds.HYPERNODE, "", body)
        except Taken:
            self._log.warning("hypernode_name_taken", hypernode=one.metadata.name)
        else:
            self._log.info("hypernode_created", hypernode=one.metadata.name, tier=one.spec.tier)
