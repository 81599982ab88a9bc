"""What an attack is made on: which services run, with which flags, and on how many NATS servers."""

from typing import NamedTuple

from tests.support.fleet import SERVICES

REPLICAS = "ab"
SINGLES = "singles"
"""The scheduler for single pods: a second program `scheduler` with a lease of its own."""
AGENT = "agent-scheduler"
"""Its name in `spec.schedulerName`, its lease and its NodeShard."""
DOORS = ("admission", "visibility")
"""Services that the API server calls."""
BOTH = f"volcano,{AGENT}"


class Installation(NamedTuple):
    """The services of one arena."""

    about: str
    nats_servers: int = 1
    single_pods: bool = False
    """Whether a scheduler for single pods runs beside the other, each in a shard of its own."""
    doors: bool = False
    """Whether admission and visibility run, each behind what a Service is."""
    burst: int = 0
    """Pods of one larger gang that comes with each round."""

    def roles(self) -> tuple[str, ...]:
        """Return what runs, in two replicas each."""
        singles = (SINGLES,) if self.single_pods else ()
        return (*SERVICES, *singles, *(DOORS if self.doors else ()))

    def flags(self, role: str) -> dict[str, str]:
        """Return the flags of a role that differ from the defaults."""
        if not self.single_pods:
            return {}
        names = {"scheduler_name": BOTH} if role in ("cache", "binder") else {}
        shard = {"scheduler_sharding_mode": "hard"} if role in ("scheduler", SINGLES) else {}
        single = {
            "single_pods": "true",
            "scheduler_name": AGENT,
            "scheduler_sharding_name": AGENT,
        }
        return {**names, **shard, **(single if role == SINGLES else {})}


PLAIN = "plain"
INSTALLATIONS = {
    PLAIN: Installation("two replicas of each service, one nats-server"),
    "three-nats": Installation("the same on three nats-servers", nats_servers=3, burst=40),
    "shards": Installation("beside them a scheduler for single pods", single_pods=True),
    "doors": Installation("beside them two of admission and of visibility", doors=True),
    "all": Installation("all of these", nats_servers=3, single_pods=True, doors=True, burst=40),
}
