"""Reconciles the NodeShards, which assign nodes to several schedulers (S01 to S03).

There is one key for all, because a node that leaves one shard joins another. A pass follows each
change of a NodeShard, of a node or of the CPU that pods on it request, at most once a second;
without the event trigger it comes once in a period. The configuration is read again every ten
seconds; one that cannot be used leaves the one before in force. At the same interval dead
schedulers are detected, whose nodes others get. Schedulers write the status of their NodeShards;
for dead ones it is written here (`adapters.takeovers`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

from typing_extensions import override

from services.controller.adapters.config_map import ConfigMapReader
from services.controller.adapters.reconciler import ControllerContext, SingletonReconciler
from services.controller.adapters.store import Touched
from services.controller.adapters.takeovers import ShardTakeovers
from services.controller.adapters.writer import apply
from services.controller.config_text import BadConfigError
from services.controller.settings import ControllerSettings
from services.controller.sharding import config
from services.controller.sharding.plan import assign, waves
from services.controller.sharding.policies import NodeLoad
from shared.api import kinds
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from shared.api.patch import merge_patch
from shared.api.scheduling import NodeShard, NodeShardSpec
from shared.contracts.subjects import key_of
from shared.kube.errors import AlreadyExists
from shared.runtime.errors import Conflict, Rejected
from shared.runtime.workqueue import WorkQueue

_READ_AGAIN_S: Final = 10.0
_WRITERS: Final = 4


def _of_flags(settings: ControllerSettings) -> config.Config:
    """Return the configuration of the flags. Raises Rejected for one that cannot be used."""
    try:
        return config.from_flags(
            settings.scheduler_configs,
            period_s=settings.shard_sync_period,
            on_events=settings.enable_node_event_trigger,
        )
    except BadConfigError as error:
        raise Rejected(str(error), field="scheduler-configs") from error


class ShardingReconciler(SingletonReconciler):
    """Reconciles all NodeShards under one key; one replica at a time acts."""

    name = "shards"
    watched: ClassVar[Sequence[Kind]] = (kinds.NODESHARD, kinds.NODE, kinds.POD)
    debounce_s = 1.0
    every_s: ClassVar[float] = _READ_AGAIN_S

    def __init__(self, manager: ControllerContext, queue: WorkQueue[str], *, workers: int) -> None:
        super().__init__(manager, queue, workers=workers)
        settings = manager.settings
        namespace = settings.sharding_configmap_namespace or manager.namespace
        self._config = flags = _of_flags(settings)
        self._file = ConfigMapReader(
            manager,
            key_of(namespace, settings.sharding_configmap),
            key=config.KEY,
            name="sharding",
            parse=lambda text: config.parse(text, flags),
        )
        self._takeovers = ShardTakeovers(manager)
        self._absent: frozenset[str] = frozenset()
        """NodeShards of schedulers that have died."""
        self._due_at = float("-inf")
        """Monotonic time of the next pass; a read of the configuration alone is none."""

    @override
    def enqueue(self, touched: Touched) -> None:
        watched = self.watched if self._config.on_events else (kinds.NODESHARD,)
        if any(touched.of(kind) for kind in watched):
            self.enqueue_all()

    @override
    def enqueue_all(self) -> None:
        self._due_at = float("-inf")
        super().enqueue_all()

    @override
    def released(self, key: str) -> None:
        self._due_at = float("-inf")

    @override
    async def reconcile_all(self) -> None:
        await self._read_config()
        await self._find_dead_schedulers()
        now = self._clock.monotonic()
        if now < self._due_at:
            return
        self._due_at = now + self._config.period_s
        self.add(self.name, self._config.period_s)
        try:
            await self._assign_nodes()
        except BaseException:
            self._due_at = float("-inf")
            raise

    async def _assign_nodes(self) -> None:
        """Write the changed NodeShards: nodes are taken from all shards before any gets more."""
        shards = dict(self._informers.shards.items())
        present = {name: one.spec.nodes_desired for name, one in shards.items()}
        alive = [one for one in self._config.shards if one.name not in self._absent]
        desired = assign(alive, list(self._loads()), present)
        desired |= {one.name: () for one in self._config.shards if one.name in self._absent}
        less, more = waves(present, desired)
        for wave in (less, more):
            await apply([partial(self._write, *one) for one in wave.items()], width=_WRITERS)
        for name in sorted(present.keys() - desired.keys()):
            await self._remove(name)

    async def _find_dead_schedulers(self) -> None:
        absent = await self._takeovers.absent(dict(self._informers.shards.items()))
        if absent != self._absent:
            self._absent = absent
            self._due_at = float("-inf")
            self._log.info("schedulers_without_nodes", shards=sorted(absent))

    async def _write(self, name: str, nodes: tuple[str, ...]) -> None:
        """Write the nodes of one NodeShard. Raises Conflict when it was written meanwhile."""
        there = self._informers.shards.get(name)
        spec = NodeShardSpec(nodes_desired=nodes)
        if there is None:
            await self._create(name, spec)
            return
        patch = {"spec": merge_patch(there.spec, spec)}
        version = there.metadata.resource_version
        await self._writer.patch(kinds.NODESHARD, there.metadata, patch, version=version)
        self._log.info("node_shard_changed", shard=name, nodes=len(nodes))

    async def _create(self, name: str, spec: NodeShardSpec) -> None:
        shard = NodeShard(metadata=ObjectMeta(name=name), spec=spec)
        try:
            await self._writer.create(kinds.NODESHARD, "", kinds.encode(kinds.NODESHARD, shard))
        except AlreadyExists as error:
            raise Conflict(f"NodeShard {name} was made meanwhile") from error
        self._log.info("node_shard_created", shard=name, nodes=len(spec.nodes_desired))

    async def _remove(self, name: str) -> None:
        """Delete a NodeShard of no scheduler, once its scheduler says that it uses no node."""
        there = self._informers.shards.get(name)
        if there is not None and not there.status.nodes_in_use:
            await self._writer.delete(kinds.NODESHARD, there.metadata)
            self._log.info("node_shard_deleted", shard=name)

    def _loads(self) -> Iterator[NodeLoad]:
        """Yield the nodes, and how much of their CPU the pods on them request."""
        requested: Mapping[str, int] = self._requested_milli()
        for name, node in self._informers.nodes.items():
            share = requested.get(name, 0) / node.cpu_milli if node.cpu_milli > 0 else 0.0
            labels = node.metadata.labels
            yield NodeLoad(name=name, labels=labels, cpu_share=min(1.0, share))

    def _requested_milli(self) -> dict[str, int]:
        found: defaultdict[str, int] = defaultdict(int)
        for pod in self._informers.pods.values():
            if pod.node:
                found[pod.node] += pod.cpu_milli
        return found

    async def _read_config(self) -> None:
        """Read the configuration; what was read last stays in force, and flags until then (S02)."""
        found = await self._file.changed()
        if found is None:
            return
        self._config = found
        self._due_at = float("-inf")
        self._log.info("sharding_config_read", shards=[one.name for one in self._config.shards])
