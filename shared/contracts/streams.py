"""Streams and durable consumers: one declaration each, applied by the declarer alone.

Every other process checks that what it needs is there as declared. A stream is created or updated,
never deleted and recreated: its `created` time is the epoch that readers compare (ADR 2).
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from shared.contracts.subjects import Subjects


class Storage(enum.Enum):
    """Where a stream keeps its messages."""

    MEMORY = "memory"
    FILE = "file"


class Retention(enum.Enum):
    """When a message leaves a stream."""

    LIMITS = "limits"
    WORK_QUEUE = "workqueue"


class Discard(enum.Enum):
    """Which message a full stream discards: the new one or the oldest."""

    NEW = "new"
    OLD = "old"


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration of one stream."""

    name: str
    """Name on the server: letters, digits, `_` and `-` only."""
    subjects: tuple[str, ...]
    storage: Storage
    retention: Retention = Retention.LIMITS
    discard: Discard = Discard.OLD
    max_msgs_per_subject: int = -1
    max_bytes: int = -1
    max_age_s: float = 0.0
    """0 keeps messages until another limit removes them."""
    duplicate_window_s: float = 120.0
    allow_msg_ttl: bool = False
    """Whether a message may carry its own time to live (tombstones, leases)."""
    republish: tuple[str, str] | None = None
    """Republishing of stored messages: source and destination subjects."""
    acknowledges: bool = True
    """Whether publishers get an acknowledgement; not for a stream that copies another."""
    allow_rollup: bool = False
    """Whether a message may take the place of all earlier ones of its subject (leaders' marks)."""
    takes_batches: bool = False
    """Whether a leader's publishes come as atomic batches where the stream has copies (ADR 38)."""
    max_consumers: int = -1
    """Consumers that may read it at once; -1: as many as the server allows."""
    replicas: int = 1
    """Servers that hold a copy; more than one needs as many servers."""


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration of one durable pull consumer."""

    stream: str
    durable: str
    filter_subject: str
    ack_wait_s: float = 1.5
    """Time after which an unacknowledged delivery is redelivered. A live reader extends it three
    times as often, so another reader takes over from a killed one within this time.
    """
    max_deliver: int = 10
    max_ack_pending: int = 256


MIB: Final = 1024 * 1024
COMMAND_BYTES: Final = 256 * 1024
"""Bytes of JSON of the pods of one intent, if it has more than one. NATS takes 1 MiB by default:
the rest is room for its outcome, which says more of each pod than the intent did."""
CONSUMERS_MAX: Final = 500
"""Consumers of EVENTS, which subscribers make: no service needs one there."""
NAMESPACE_CONSUMERS_MAX: Final = 100
"""Consumers of the events of one namespace, which its tenants make."""
OUTCOME_AGE_S: Final = 3600.0
"""Outcomes are kept for an hour; a restarting scheduler needs a quarter of it."""
WAITING_TTL_S: Final = 3600
"""Time to live of an explanation: it is published again after half of this time while it is valid.
So the messages of a dead leader expire.
"""
WAITED_TTL_S: Final = 60
"""Time to live of the message that a gang no longer waits."""
TOMBSTONE_TTL_S: Final = 600
"""Time to live of a tombstone: a reader that was disconnected for half of it replays from the
start. Each costs the server nearly 1 KiB, so tombstones are kept no longer than a reconnect takes.
"""


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """All streams of one cluster."""

    state: StreamSpec
    command: StreamSpec
    desired: StreamSpec
    outcome: StreamSpec
    events: StreamSpec
    lease: StreamSpec
    waiting: StreamSpec
    usage: StreamSpec


def streams(
    cluster: str,
    *,
    state_storage: Storage = Storage.MEMORY,
    state_bytes: int = 2048 * MIB,
    events_bytes: int = 1024 * MIB,
) -> Streams:
    """Return the declarations of all streams of `cluster`."""
    s = Subjects(cluster=cluster)
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in cluster)

    def name(stream: str) -> str:
        return f"PUMICE_{safe}_{stream}"

    return Streams(
        state=StreamSpec(
            name=name("STATE"),
            subjects=(f"{s.prefix}.state.>",),
            storage=state_storage,
            discard=Discard.NEW,
            max_msgs_per_subject=1,
            max_bytes=state_bytes,
            allow_msg_ttl=True,
            takes_batches=True,
        ),
        command=StreamSpec(
            name=name("COMMAND"),
            subjects=(f"{s.prefix}.command.*",),
            storage=Storage.FILE,
            retention=Retention.WORK_QUEUE,
            discard=Discard.NEW,
            max_bytes=256 * MIB,
            allow_rollup=True,
            takes_batches=True,
        ),
        desired=StreamSpec(
            name=name("DESIRED"),
            subjects=(f"{s.prefix}.desired.>",),
            storage=Storage.FILE,
            discard=Discard.NEW,
            max_msgs_per_subject=1,
            max_bytes=512 * MIB,
            allow_msg_ttl=True,
        ),
        outcome=StreamSpec(
            name=name("OUTCOME"),
            subjects=(f"{s.prefix}.outcome.*",),
            storage=Storage.FILE,
            max_age_s=OUTCOME_AGE_S,
            max_bytes=512 * MIB,
        ),
        events=StreamSpec(
            name=name("EVENTS"),
            subjects=(f"{s.prefix}.events.>",),
            storage=Storage.FILE,
            max_age_s=7 * 86400.0,
            max_bytes=events_bytes,
            republish=(f"{s.prefix}.events.>", s.republished(f"{s.prefix}.events.>")),
            max_consumers=CONSUMERS_MAX,
        ),
        lease=StreamSpec(
            name=name("LEASE"),
            subjects=(f"{s.prefix}.lease.>", f"{s.prefix}.member.>"),
            storage=Storage.FILE,
            max_msgs_per_subject=1,
            max_bytes=16 * MIB,
            allow_msg_ttl=True,
        ),
        waiting=StreamSpec(
            name=name("WAITING"),
            subjects=(f"{s.prefix}.waiting.>",),
            storage=state_storage,
            max_msgs_per_subject=1,
            max_bytes=64 * MIB,
            allow_msg_ttl=True,
        ),
        usage=StreamSpec(
            name=name("USAGE"),
            subjects=(s.usages,),
            storage=Storage.FILE,
            max_msgs_per_subject=1,
            max_bytes=64 * MIB,
        ),
    )


def all_streams(declared: Streams) -> tuple[StreamSpec, ...]:
    """Return every stream of a cluster."""
    return (
        declared.state,
        declared.command,
        declared.desired,
        declared.outcome,
        declared.events,
        declared.lease,
        declared.waiting,
        declared.usage,
    )


def events_of(cluster: str, namespace: str) -> StreamSpec:
    """Return the stream with the events of one namespace, for subscribers who see no other."""
    events = streams(cluster).events
    return StreamSpec(
        name=f"{events.name}_{namespace}",
        subjects=(Subjects(cluster=cluster).events_of(namespace),),
        storage=Storage.FILE,
        max_age_s=events.max_age_s,
        max_bytes=64 * MIB,
        acknowledges=False,
        max_consumers=NAMESPACE_CONSUMERS_MAX,
    )


def with_copies_of_events(
    declared: Streams, cluster: str, namespaces: Iterable[str]
) -> tuple[StreamSpec, ...]:
    """Return every stream of a cluster, those with the events of single namespaces behind."""
    return (*all_streams(declared), *(events_of(cluster, name) for name in namespaces))


def copied(
    specs: Iterable[StreamSpec], replicas: int, *, exceptions: Mapping[str, int] | None = None
) -> tuple[StreamSpec, ...]:
    """Return declarations with a copy of each stream on `replicas` servers.

    `exceptions` are other numbers, by the names of their streams.
    """
    other = exceptions or {}
    return tuple(
        msgspec.structs.replace(spec, replicas=other.get(spec.name, replicas)) for spec in specs
    )


PARTITIONS: Final = 4
"""Partitions of COMMAND and DESIRED: enough for the binders of one cluster to share the work."""
JOB_PARTITIONS: Final = 16
"""Partitions of the jobs among the controllers: one lease each."""


def command_consumer(cluster: str, partition: int) -> ConsumerSpec:
    """Return the durable consumer that all binders share for one partition of COMMAND."""
    return ConsumerSpec(
        stream=streams(cluster).command.name,
        durable=f"binder-command-p{partition}",
        filter_subject=Subjects(cluster=cluster).command(partition),
    )


def desired_consumer(cluster: str, partition: int) -> ConsumerSpec:
    """Return the durable consumer that all binders share for one partition of DESIRED.

    Deliveries have no upper count: a status that the API server does not show yet stays desired.
    """
    return ConsumerSpec(
        stream=streams(cluster).desired.name,
        durable=f"binder-desired-p{partition}",
        filter_subject=Subjects(cluster=cluster).desired_partition(partition),
        max_deliver=-1,
        max_ack_pending=1024,
    )


def durable_consumers(cluster: str) -> tuple[ConsumerSpec, ...]:
    """Return every durable consumer of a cluster."""
    return tuple(
        consumer(cluster, partition)
        for partition in range(PARTITIONS)
        for consumer in (command_consumer, desired_consumer)
    )
