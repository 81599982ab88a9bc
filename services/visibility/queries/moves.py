"""Moves of pods by which waiting jobs would start: the action defrag in a rehearsal.

The scheduler's own action chooses them, on the state as it is now and as if its schedule were due.
The pods come again in the rehearsal, so that each has a place when the jobs have started.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from services.scheduler.policy.actions.defrag import REASON
from services.visibility.queries.cluster_mirror import ClusterMirror
from services.visibility.queries.gangs import BadQuery
from services.visibility.queries.rehearsal import Rehearsal
from services.visibility.queries.survey import DecisionPolicy, without_evictions
from services.visibility.queries.wording import owner_of
from shared.api.visibility import MovedPod
from shared.api.whatifs import Defragmentation
from shared.jobs.defrag import MOVES_MAX

_DUE: Final = "@every 1s"
_FIELD: Final = "spec.defragment"


def defragmenting(policy: DecisionPolicy, asked: Defragmentation) -> DecisionPolicy:
    """Return a policy that moves pods within a budget, and evicts none else. Raises `BadQuery`."""
    if not 1 <= asked.max_moves <= MOVES_MAX:
        raise BadQuery(
            f"{asked.max_moves} is no number of moves: 1 to {MOVES_MAX}",
            field=f"{_FIELD}.maxMoves",
        )
    if policy.config.volcano_evictions:
        text = "with volcanoEvictions, the scheduler cannot keep the room that moves make"
        raise BadQuery(text, field=_FIELD)
    config = without_evictions(policy.config)
    arguments = {**config.arguments.get(REASON, {}), "schedule": _DUE, "maxMoves": asked.max_moves}
    if asked.max_cost is not None:
        arguments["maxCost"] = asked.max_cost
    config = replace(
        config,
        actions=(*config.actions, REASON),
        arguments={**config.arguments, REASON: arguments},
    )
    return replace(policy, config=config)


def moves_of(rehearsal: Rehearsal, mirror: ClusterMirror) -> Iterator[MovedPod]:
    """Yield the pods that a rehearsal has moved, by name."""
    state = mirror.state
    for uid, moved in sorted(rehearsal.evicted.items(), key=lambda item: item[1].pod):
        task = state.task(uid)
        job = state.jobs.get(moved.job)
        preemptor = state.task(moved.preemptor_uid)
        claimant = state.jobs.get(preemptor.job_key) if preemptor is not None else None
        if moved.reason != REASON or task is None or job is None:
            continue
        yield MovedPod(
            namespace=task.namespace,
            name=task.name,
            uid=uid,
            job=owner_of(job).name,
            queue=job.queue,
            cost=job.eviction_cost(task),
            node=moved.node,
            to=task.node,
            starts=owner_of(claimant) if claimant is not None else None,
        )
