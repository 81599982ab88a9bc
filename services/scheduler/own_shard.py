"""The status that a scheduler wants of its own NodeShard (CA12); the worker's, and pure."""

from services.scheduler.engine.session.sharding import Mode, Sharding
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.engine.state.shards import ShardStatus
from services.scheduler.reminding import DesiredStatus
from shared.api.kinds import NODESHARD
from shared.contracts.messages import DesiredNodeShard


class OwnShard:
    """Asks for the status once per change of it."""

    def __init__(self, sharding: Sharding) -> None:
        self.sharding = sharding
        self._offered: ShardStatus | None = None
        """The status that is about to be published."""

    def carried_over(self, before: ClusterState, anew: ClusterState) -> ClusterState:
        """Return a cluster state that is filled anew; what was given back remains so."""
        anew.shards.given_back = before.shards.given_back
        return anew

    def wanted(self, cluster_state: ClusterState, cycle: int) -> list[DesiredStatus]:
        """Return the status to publish, if it is another; what it gives back is used no more."""
        self._offered = None
        name, shards = self.sharding.name, cluster_state.shards
        own = shards.get(name)
        if self.sharding.mode is Mode.NONE or own is None:
            return []
        status = shards.status(name, cluster_state.busy_nodes())
        if status is None:
            return []
        self._offered = status
        shards.give_back(name, status)
        message = DesiredNodeShard(
            key=name,
            uid=own.uid,
            in_use=tuple(sorted(status.in_use)),
            to_add=tuple(sorted(status.to_add)),
            to_remove=tuple(sorted(status.to_remove)),
            tenure=shards.unsigned(name),
            cycle=cycle,
            rv=own.rv,
        )
        return [DesiredStatus(kind=NODESHARD.token, wanted=message)]

    def published(self, cluster_state: ClusterState) -> None:
        """Go by a status that was published until the object shows it."""
        if self._offered is not None:
            cluster_state.shards.adopt(self.sharding.name, self._offered)
