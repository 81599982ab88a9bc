"""Who may publish and subscribe what on NATS: one user per service, least rights.

The local stack, compose and k8s make their server configuration from this table: NATS is closed
from the first day. JetStream's own subjects count too: creating a stream, reading a consumer and
acknowledging are publishes to `$JS.…`.
"""

import msgspec

from shared.contracts.streams import Streams, streams
from shared.contracts.subjects import Subjects


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects that one user may publish to and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def inbox_prefix(service: str) -> str:
    """Return the prefix of a service's reply subjects: nobody else may subscribe to it."""
    return f"_INBOX_{service}"


def _read(stream: str) -> tuple[str, ...]:
    """Return what reading `stream` by followers and single gets publishes to."""
    return (
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}.>",
        f"$JS.API.CONSUMER.CREATE.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.INFO.{stream}.>",
        f"$JS.API.CONSUMER.DELETE.{stream}.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>",
        f"$JS.ACK.{stream}.>",
        "$JS.FC.>",
    )


def _declare(stream: str) -> tuple[str, ...]:
    """Return what creating or updating `stream` publishes to."""
    return (
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.STREAM.CREATE.{stream}",
        f"$JS.API.STREAM.UPDATE.{stream}",
    )


def _purge(stream: str) -> tuple[str, ...]:
    return (f"$JS.API.STREAM.PURGE.{stream}",)


def permissions(cluster: str) -> dict[str, Permissions]:
    """Return the permissions per user: the services, and `events` for subscribers of events."""
    subjects = Subjects(cluster=cluster)
    s = streams(cluster)
    prefix = subjects.prefix
    common = ("$JS.API.INFO", *_declare(s.lease.name), *_read(s.lease.name))
    announced = (*common, f"{prefix}.lease.>", f"{prefix}.member.>")

    def user(service: str, *publish: tuple[str, ...]) -> Permissions:
        granted = dict.fromkeys(subject for group in publish for subject in group)
        return Permissions(publish=tuple(granted), subscribe=(f"{inbox_prefix(service)}.>",))

    return {
        "cache": user(
            "cache", announced, _declare(s.state.name), _read(s.state.name), (f"{prefix}.state.>",)
        ),
        "scheduler": user("scheduler", announced, *_scheduler(s, prefix)),
        "binder": user("binder", announced, *_binder(s, prefix)),
        "controller": user(
            "controller",
            announced,
            _read(s.state.name),
            _read(s.outcome.name),
            _declare(s.events.name),
            (f"{prefix}.events.>",),
        ),
        "events": user("events", ("$JS.API.INFO",), _read(s.events.name)),
    }


def _scheduler(s: Streams, prefix: str) -> tuple[tuple[str, ...], ...]:
    return (
        _read(s.state.name),
        _declare(s.command.name),
        _read(s.command.name),
        _purge(s.command.name),
        _declare(s.desired.name),
        _read(s.desired.name),
        _purge(s.desired.name),
        _declare(s.outcome.name),
        _read(s.outcome.name),
        _declare(s.events.name),
        (f"{prefix}.command.>", f"{prefix}.desired.>", f"{prefix}.events.>"),
    )


def _binder(s: Streams, prefix: str) -> tuple[tuple[str, ...], ...]:
    return (
        _read(s.state.name),
        _declare(s.command.name),
        _read(s.command.name),
        _declare(s.desired.name),
        _read(s.desired.name),
        _purge(s.desired.name),
        _declare(s.outcome.name),
        _read(s.outcome.name),
        _declare(s.events.name),
        (f"{prefix}.outcome.>", f"{prefix}.events.>"),
    )
