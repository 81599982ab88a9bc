"""No node is used by two schedulers at one moment, however late each of them sees what is written.

A model of the API server keeps NodeShards and their order of writes. Each scheduler sees the
beginning of it, decides by `NodeShards`, and its statuses are written late, as the binder does it.
The sharding controller deals the nodes out in waves meanwhile, and takes them from schedulers that
have died. Seeds are drawn: histories that find a rule broken are rare.
"""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from services.binder.intents.desired import as_decided, shard_patch
from services.controller.sharding.plan import waves
from services.scheduler.engine.state.shards import NodeShards
from shared.api import keys, kinds
from shared.api.scheduling import NodeShard
from shared.contracts.messages import DesiredNodeShard

NODES = ("n1",)
NAMES = ("a", "b", "c")
NOW = "2026-01-01T00:00:00Z"


class Api:
    """The NodeShards, and each version that was ever written, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[str, NodeShard]] = []

    def write(self, name: str, part: str, value: dict[str, Any]) -> None:
        """Put `spec` or `status` of a NodeShard."""
        found = self.objects.setdefault(name, {"spec": {"nodesDesired": []}, "status": {}})
        found[part] = {**found[part], **value}
        meta = found.get("metadata", {"name": name, "uid": f"uid-{name}"})
        found["metadata"] = {**meta, "resourceVersion": str(len(self.log) + 1)}
        self.log.append((name, self.read(name)))

    def read(self, name: str) -> NodeShard:
        """Return a NodeShard as it is."""
        found: NodeShard = kinds.decode(kinds.NODESHARD, msgspec.json.encode(self.objects[name]))
        return found


class Scheduler:
    """One scheduler: what it has seen, where something of it is under way, what is not written."""

    def __init__(self, name: str, api: Api) -> None:
        self.name, self.api = name, api
        self.seen = 0
        self.shards = NodeShards()
        self.under_way: set[str] = set()
        self.message: DesiredNodeShard | None = None
        self.to_sign = ""
        self.lives = True
        self.leadership_term = 0
        self._begin()

    def _begin(self) -> None:
        self.shards = NodeShards()
        self.shards.leadership_term = f"lease-of-{self.name}.{self.leadership_term}"
        for name, shard in self.api.log[: self.seen]:
            self.shards.put(name, shard)

    @property
    def uses(self) -> set[str]:
        """Return the nodes that it would bind pods to now, or has something under way on."""
        if not self.lives:
            return set()
        return set(self.shards.usable(self.name)) | self.under_way

    def die(self) -> None:
        """Lose the Lease; what is under way has ended before another may take it."""
        self.lives = False
        self.under_way.clear()

    def is_taken_over(self) -> None:
        """Let another take the Lease for a moment, and the nodes that are shown to be in use."""
        if not self.lives:
            self.leadership_term += 1
            self.message, self.to_sign = None, ""
            self.api.write(self.name, "status", {"nodesInUse": []})

    def revive(self, rng: random.Random) -> None:
        """Take the Lease back; after another's turn it may see the cluster as it was long ago."""
        if self.lives:
            return
        self.lives = True
        if self.shards.leadership_term != f"lease-of-{self.name}.{self.leadership_term}":
            self.leadership_term += 1
            self.seen = rng.randint(0, len(self.api.log))
            self._begin()

    def see(self, number: int) -> None:
        """See some more of what was written."""
        for name, shard in self.api.log[self.seen : self.seen + number]:
            self.shards.put(name, shard)
        self.seen = min(len(self.api.log), self.seen + number)

    def cycle(self, *, binds: bool) -> None:
        """Bind to the nodes it may use, and say which it wants to have in use."""
        if not self.lives:
            return
        if binds:
            self.under_way |= self.shards.usable(self.name)
        status = self.shards.status(self.name, self.under_way)
        own = self.shards.get(self.name)
        if status is not None and own is not None:
            self.shards.give_back(self.name, status)
            self.shards.assume_status(self.name, status)
            self.message = DesiredNodeShard(
                key=self.name,
                uid=own.uid,
                in_use=tuple(sorted(status.in_use)),
                to_add=tuple(sorted(status.to_add)),
                to_remove=tuple(sorted(status.to_remove)),
                leadership_term=self.shards.unsigned(self.name),
                rv=own.rv,
            )

    def written(self) -> None:
        """Let a binder write the last status: as decided, or compared with what is there."""
        if not self.lives:
            return
        message, self.message = self.message, None
        if message is None:
            self._signed()
            return
        self.to_sign = message.leadership_term or ""
        present = self.api.read(self.name)
        if present.metadata.resource_version == message.rv:
            patch = as_decided(message, now=NOW)[0]
        else:
            patch = shard_patch(message, present, now=NOW)
        if patch:
            self.api.write(self.name, "status", patch)

    def _signed(self) -> None:
        if self.to_sign:
            leadership_term, self.to_sign = self.to_sign, ""
            self.api.write(
                self.name, "metadata", {"annotations": {keys.LEADERSHIP_TERM: leadership_term}}
            )


class World:
    """Schedulers on one API server, and a controller that deals nodes out."""

    def __init__(self) -> None:
        self.api = Api()
        for name in NAMES:
            self.api.write(name, "spec", {"nodesDesired": []})
        self.schedulers = [Scheduler(name, self.api) for name in NAMES]
        self.writes: Iterator[tuple[str, tuple[str, ...]]] = iter(())

    def deal(self, owners: dict[str, str]) -> None:
        """Begin to deal the nodes out anew; a deal that is not finished is left as it is."""
        wanted = {name: tuple(n for n in NODES if owners.get(n) == name) for name in NAMES}
        present = {n: tuple(o["spec"]["nodesDesired"]) for n, o in self.api.objects.items()}
        self.writes = (write for wave in waves(present, wanted) for write in wave.items())

    def step(self, scheduler: Scheduler, what: str, rng: random.Random) -> None:
        """Let one thing happen; what concerns dead schedulers, to one of them."""
        dead = [one for one in self.schedulers if not one.lives] or [scheduler]
        if what == "die":
            scheduler.die()
        elif what == "taken over":
            rng.choice(dead).is_taken_over()
        elif what == "revive":
            rng.choice(dead).revive(rng)
        elif what == "see":
            scheduler.see(1)
        elif what == "bind":
            scheduler.cycle(binds=True)
        elif what == "look":
            scheduler.cycle(binds=False)
        elif what == "bound":
            scheduler.under_way.clear()
        elif what == "written":
            scheduler.written()
        else:
            for name, nodes in self.writes:
                self.api.write(name, "spec", {"nodesDesired": list(nodes)})
                break

    def rest(self, rng: random.Random) -> None:
        """Let everything come to its end."""
        for scheduler in self.schedulers:
            scheduler.revive(rng)
        for name, nodes in self.writes:
            self.api.write(name, "spec", {"nodesDesired": list(nodes)})
        for _ in range(8):
            for scheduler in self.schedulers:
                scheduler.under_way.clear()
                scheduler.see(len(self.api.log))
                scheduler.cycle(binds=False)
                scheduler.written()
                scheduler.written()


STEPS = ("see", "see", "see", "look", "bind", "bound", "written", "written", "deal", "deal")
DEATHS = (*STEPS, "die", "taken over", "revive")


@pytest.mark.parametrize("seed", range(0, 3000, 300))
def test_no_node_is_used_by_two_schedulers_at_one_moment_ca12(seed: int) -> None:
    for number in range(seed, seed + 300):
        history(random.Random(number), STEPS)


@pytest.mark.parametrize("seed", range(0, 3000, 300))
def test_nor_when_the_nodes_of_those_that_died_are_given_to_others_ca12(seed: int) -> None:
    for number in range(seed, seed + 300):
        history(random.Random(number), DEATHS)


def history(rng: random.Random, steps: tuple[str, ...]) -> None:
    """Play one history, then let it come to rest."""
    world, owners = World(), dict[str, str]()
    for _ in range(8):
        owners = {node: rng.choice(NAMES) for node in NODES}
        world.deal(owners)
        for _ in range(24):
            world.step(rng.choice(world.schedulers), rng.choice(steps), rng)
            used = [node for scheduler in world.schedulers for node in sorted(scheduler.uses)]
            assert len(used) == len(set(used)), used
    world.rest(rng)
    for scheduler in world.schedulers:
        wanted = {node for node in NODES if owners[node] == scheduler.name}
        assert scheduler.uses == wanted, "each has what it is to have, and no more"
        status = world.api.read(scheduler.name).status
        assert set(status.nodes_in_use) == wanted
        assert (status.nodes_to_add, status.nodes_to_remove) == ((), ())
