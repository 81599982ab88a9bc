"""Plans to messages: what the shell publishes of a plan, without any I/O.

Intent ids are `<leader token>-<cycle>-<index>`: unique over all leaders and cycles, and the same
again only when the same message is sent again.
"""

from collections.abc import Iterator
from itertools import count, groupby

from msgspec import structs

from services.scheduler.engine.plan import Eviction, GangBinds, Plan
from shared.contracts import messages as m


def commands(plan: Plan, *, token: int, gang_message: int) -> list[m.Command]:
    """Return the intents of a plan in order: binds gang by gang, then evictions.

    A gang of more than `gang_message` pods is split; evictions travel together per preemptor.
    """
    ids = (f"{token}-{plan.cycle}-{index}" for index in count())
    wanted: list[m.Command] = [
        m.BindGang(id=next(ids), cycle=plan.cycle, job=gang.job, job_uid=gang.job_uid, binds=binds)
        for gang in plan.binds
        for binds in _chunks(gang, gang_message)
    ]
    nominated = {n.uid: n for n in plan.nominations}
    for (reason, uid), victims in groupby(plan.evictions, key=_cause):
        nomination = nominated.get(uid)
        preemptor = None
        if nomination is not None:
            preemptor = m.Preemptor(pod=nomination.pod, uid=uid, node=nomination.node)
        wanted.append(
            m.Evict(
                id=next(ids),
                cycle=plan.cycle,
                reason=reason,
                preemptor=preemptor,
                victims=tuple(
                    m.Victim(pod=v.pod, uid=v.uid, job=v.job, node=v.node) for v in victims
                ),
            )
        )
    return wanted


def _chunks(gang: GangBinds, size: int) -> Iterator[tuple[m.Bind, ...]]:
    binds = tuple(
        m.Bind(
            pod=b.pod,
            uid=b.uid,
            node=b.node,
            annotations=dict(b.annotations),
            claims=tuple(m.ClaimUse(**structs.asdict(use)) for use in b.claims),
        )
        for b in gang.binds
    )
    for start in range(0, len(binds), size):
        yield binds[start : start + size]


def _cause(eviction: Eviction) -> tuple[str, str]:
    return eviction.reason, eviction.preemptor_uid


def key_of(command: m.Command) -> str:
    """Return the key by which a command finds its partition: its job, or its first victim."""
    return command.job if isinstance(command, m.BindGang) else command.victims[0].pod


def desires(plan: Plan) -> list[tuple[str, m.Desired]]:
    """Return (kind token, wanted status) for every object whose status should change."""
    wanted: list[tuple[str, m.Desired]] = [
        (
            "podgroups",
            m.DesiredPodGroup(
                key=group.key,
                uid=group.uid,
                phase=group.phase,
                running=group.running,
                succeeded=group.succeeded,
                failed=group.failed,
                conditions=tuple(m.Condition(**c._asdict()) for c in group.conditions),
                cycle=plan.cycle,
            ),
        )
        for group in plan.podgroups
    ]
    wanted += [
        (
            "pods",
            m.DesiredPod(
                key=pod.key,
                uid=pod.uid,
                conditions=(m.Condition(**pod.condition._asdict()),),
                cycle=plan.cycle,
            ),
        )
        for pod in plan.pods
    ]
    wanted += [
        (
            "queues",
            m.DesiredQueue(
                key=queue.name, uid=queue.uid, allocated=dict(queue.allocated), cycle=plan.cycle
            ),
        )
        for queue in plan.queues
    ]
    return wanted
