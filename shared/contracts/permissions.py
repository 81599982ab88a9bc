"""Permissions on NATS: one user per service with least privilege.

The local stack, compose and k8s make their server configuration from this table
(`pumice.deploy.nats_config`), and the NATS server of the tests refuses by it. JetStream's own
subjects count too: making a stream, reading a consumer and acknowledging are publishes to `$JS.…`.

`declarer` alone makes and changes streams and durable consumers. A reader makes ephemeral
consumers for itself, on the streams that it reads and that no durable consumer works on.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.contracts.streams import (
    JOB_PARTITIONS,
    Streams,
    StreamSpec,
    all_streams,
    durable_consumers,
    events_of,
    streams,
    with_copies_of_events,
)
from shared.contracts.subjects import SINGLE_PODS, Subjects

DECLARER: Final = "declarer"
"""The user that makes and changes streams and durable consumers."""
EVENTS: Final = "events"
"""The user for subscribers of scheduling events."""


_STREAM_VERBS: Final = ("INFO", "CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE")
_CONSUMER_VERBS: Final = ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT")


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects that one user may publish to and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    serves: str = ""
    """Subject on which the user replies to requests of other users."""


def inbox_prefix(service: str) -> str:
    """Return the prefix of a service's reply subjects: no other user may subscribe to it."""
    return f"_INBOX_{service}"


def _info(*specs: StreamSpec) -> tuple[str, ...]:
    """Return the subjects for reading the state of streams."""
    return tuple(f"$JS.API.STREAM.INFO.{spec.name}" for spec in specs)


def _get(spec: StreamSpec) -> tuple[str, ...]:
    """Return the subjects for reading single messages of a stream."""
    return (*_info(spec), f"$JS.API.STREAM.MSG.GET.{spec.name}", f"$JS.API.DIRECT.GET.{spec.name}")


def _follow(spec: StreamSpec) -> tuple[str, ...]:
    """Return the subjects for following a stream."""
    return (
        *_get(spec),
        f"$JS.API.CONSUMER.CREATE.{spec.name}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{spec.name}.*",
    )


def _work(cluster: str, spec: StreamSpec) -> tuple[str, ...]:
    """Return the subjects for using the durable consumers of a stream."""
    names = [c.durable for c in durable_consumers(cluster) if c.stream == spec.name]
    return tuple(
        subject
        for name in names
        for subject in (
            f"$JS.API.CONSUMER.INFO.{spec.name}.{name}",
            f"$JS.API.CONSUMER.MSG.NEXT.{spec.name}.{name}",
            f"$JS.ACK.{spec.name}.{name}.>",
        )
    )


def _declare(cluster: str, namespaces: Sequence[str]) -> tuple[str, ...]:
    """Return the subjects for creating and updating all streams and durable consumers."""
    made = [
        f"$JS.API.STREAM.{verb}.{spec.name}"
        for spec in with_copies_of_events(streams(cluster), cluster, namespaces)
        for verb in ("INFO", "CREATE", "UPDATE")
    ]
    made += [
        f"$JS.API.CONSUMER.{verb}.{consumer.stream}.{consumer.durable}"
        for consumer in durable_consumers(cluster)
        for verb in ("INFO", "CREATE")
    ]
    return tuple(made)


def _subscribe_to_events(spec: StreamSpec) -> tuple[str, ...]:
    """Return the subjects for reading a stream with a NATS client of any language."""
    name = spec.name
    return (
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        *_get(spec),
        f"$JS.API.DIRECT.GET.{name}.>",
        f"$JS.API.CONSUMER.CREATE.{name}",
        f"$JS.API.CONSUMER.CREATE.{name}.>",
        f"$JS.API.CONSUMER.DURABLE.CREATE.{name}.>",
        f"$JS.API.CONSUMER.INFO.{name}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{name}.*",
        f"$JS.ACK.{name}.>",
        f"$JS.FC.{name}.>",
    )


def subscriber(namespace: str) -> str:
    """Return the user for subscribers who see the events of one namespace only."""
    return f"{EVENTS}-{namespace}"


def permissions(cluster: str, namespaces: Sequence[str] = ()) -> dict[str, Permissions]:
    """Return the permissions per user: services, `declarer`, and `events` for subscribers.

    Each of `namespaces` has a user for subscribers of its own (`subscriber`).
    """
    subjects = Subjects(cluster=cluster)
    s = streams(cluster)
    prefix = subjects.prefix

    def service(
        name: str,
        leases: tuple[str, ...],
        *publish: tuple[str, ...],
        hears: tuple[str, ...] = (),
        serves: str = "",
    ) -> Permissions:
        presence = subjects.presences_of(name)
        own = (*leases, subjects.members_of(name), presence)
        heard = (presence, *hears, *filter(None, (serves,)))
        granted = _user(name, _get(s.lease), own, *publish, hears=heard)
        return msgspec.structs.replace(granted, serves=serves)

    scheduler_leases = (
        subjects.lease("scheduler"),
        subjects.lease(SINGLE_PODS),
        subjects.quarantine(),
        subjects.quarantine(SINGLE_PODS),
    )
    job_leases = tuple(subjects.job_lease(partition) for partition in range(JOB_PARTITIONS))
    return {
        "cache": service(
            "cache",
            (subjects.lease("cache"),),
            _follow(s.state),
            _info(s.events),
            (f"{prefix}.state.>", subjects.event("leader.changed", "cache")),
        ),
        "scheduler": service("scheduler", scheduler_leases, *_scheduler(s, prefix)),
        "binder": service("binder", (), *_binder(cluster, s, prefix)),
        "controller": service(
            "controller",
            job_leases,
            _follow(s.state),
            _info(s.events),
            (f"{prefix}.events.>",),
            hears=(subjects.admissions, subjects.budget_warnings),
        ),
        "visibility": service(
            "visibility",
            (),
            _follow(s.state),
            _get(s.command),
            _follow(s.outcome),
            _get(s.events),
            _follow(s.waiting),
            _follow(s.usage),
            (subjects.reports,),
        ),
        "accounting": service(
            "accounting",
            (),
            _follow(s.state),
            _get(s.events),
            _info(s.usage),
            (subjects.usages,),
            serves=subjects.reports,
        ),
        DECLARER: _user(DECLARER, _declare(cluster, namespaces)),
        EVENTS: _reader(EVENTS, s.events, f"{prefix}.events.>"),
        **{
            subscriber(namespace): _reader(
                subscriber(namespace), events_of(cluster, namespace), subjects.events_of(namespace)
            )
            for namespace in namespaces
        },
    }


def _user(name: str, *publish: tuple[str, ...], hears: tuple[str, ...] = ()) -> Permissions:
    granted = dict.fromkeys(subject for group in (("$JS.API.INFO",), *publish) for subject in group)
    return Permissions(publish=tuple(granted), subscribe=(f"{inbox_prefix(name)}.>", *hears))


def _reader(name: str, events: StreamSpec, subjects: str) -> Permissions:
    """Return the rights of a subscriber: NATS clients choose the names of their inboxes."""
    return _user(name, _subscribe_to_events(events), hears=("_INBOX.>", subjects))


def _scheduler(s: Streams, prefix: str) -> tuple[tuple[str, ...], ...]:
    return (
        _follow(s.state),
        _get(s.command),
        _info(s.desired, s.events, s.waiting),
        _follow(s.outcome),
        _follow(s.usage),
        (
            f"{prefix}.command.>",
            f"{prefix}.desired.>",
            f"{prefix}.events.>",
            f"{prefix}.waiting.>",
        ),
    )


def _binder(cluster: str, s: Streams, prefix: str) -> tuple[tuple[str, ...], ...]:
    return (
        _follow(s.state),
        _info(s.command),
        _work(cluster, s.command),
        _get(s.desired),
        _work(cluster, s.desired),
        _follow(s.outcome),
        _info(s.events),
        (f"{prefix}.outcome.>", f"{prefix}.events.>"),
    )


def administrator(cluster: str) -> Permissions:
    """Return the rights of an administrator and of tests: all operations on streams."""
    declared = all_streams(streams(cluster))
    granted = ["$JS.API.INFO", f"{Subjects(cluster=cluster).presence_prefix}>"]
    for spec in declared:
        name = spec.name
        granted += [
            *(f"$JS.API.STREAM.{verb}.{name}" for verb in _STREAM_VERBS),
            f"$JS.API.DIRECT.GET.{name}",
            f"$JS.API.DIRECT.GET.{name}.>",
            *(f"$JS.API.CONSUMER.{verb}.{name}" for verb in ("CREATE", "NAMES", "LIST")),
            *(f"$JS.API.CONSUMER.{verb}.{name}.>" for verb in _CONSUMER_VERBS),
            f"$JS.ACK.{name}.>",
            f"$JS.FC.{name}.>",
            *spec.subjects,
        ]
    return Permissions(publish=tuple(granted), subscribe=())
