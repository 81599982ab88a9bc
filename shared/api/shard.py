"""NodeShard (shard.volcano.sh): the nodes of one scheduler where several share a cluster (C10)."""

from typing import Annotated

from shared.api.base import Timestamp, View, doc
from shared.api.meta import ObjectMeta

Nodes = tuple[str, ...]


class NodeShardSpec(View, frozen=True, kw_only=True):
    """Which nodes a scheduler is to have."""

    nodes_desired: Annotated[Nodes, doc("Nodes that belong to the scheduler of this name.")]


class NodeShardStatus(View, frozen=True, kw_only=True):
    """Which nodes it has, and what is still to change."""

    nodes_in_use: Annotated[Nodes, doc("Nodes that it uses.")] = ()
    nodes_to_add: Annotated[Nodes, doc("Nodes that it will use.")] = ()
    nodes_to_remove: Annotated[Nodes, doc("Nodes that it will leave.")] = ()
    last_update_time: Annotated[Timestamp | None, doc("When the status changed.")] = None


class NodeShard(View, frozen=True, kw_only=True):
    """The shard of the scheduler that it is named after."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodeShardSpec, doc("Desired state.")] = NodeShardSpec(nodes_desired=())
    status: Annotated[NodeShardStatus, doc("Observed state.")] = NodeShardStatus()
