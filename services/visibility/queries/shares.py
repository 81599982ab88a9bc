"""Shares of queues and users, and their decayed usage as accounting published it last.

The numbers are those by which the plugin `fairshare` orders, with its default weights if the
configuration does not have the plugin. What jobs hold since the last message does not count.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from services.scheduler.config import SchedulerConfig
from services.scheduler.engine.jobs.records import Queue
from services.scheduler.policy.plugins.fairshare import FairShare, user_shares
from services.visibility.queries.gangs import BadQuery
from services.visibility.queries.queues import Family
from shared.api.scheduling import ROOT_QUEUE
from shared.api.time import format_seconds
from shared.api.usage_reports import (
    LIMIT_MAX,
    SHARES,
    ShareRow,
    UsageReportSpec,
    UsageReportStatus,
)
from shared.contracts.usage import QueueUsage
from shared.model.decayed_usage import decay
from shared.model.fair_tree import paths, usage_over_share


def shares(
    queues: Mapping[str, Queue],
    published: Mapping[str, QueueUsage],
    config: SchedulerConfig,
    *,
    now: float,
) -> tuple[ShareRow, ...]:
    """Return queues, each behind its parent, with their users; usage is decayed to `now`."""
    return tuple(_Shares(queues, published, config, now).rows())


def shares_report(spec: UsageReportSpec, rows: Sequence[ShareRow], now: float) -> UsageReportStatus:
    """Return the page of a query. Raises BadQuery for a query that shares do not have."""
    for field in ("namespace", "job"):
        if getattr(spec, field):
            raise BadQuery(f"{SHARES} does not take it", field=f"spec.{field}")
    if not 1 <= spec.limit <= LIMIT_MAX:
        raise BadQuery(f"{spec.limit}: use 1 to {LIMIT_MAX}", field="spec.limit")
    if spec.after and not spec.after.isdecimal():
        raise BadQuery("it is not the `next` of a page", field="spec.after")
    found = [row for row in rows if spec.queue in ("", row.queue) and spec.user in ("", row.user)]
    begin = int(spec.after or "0")
    end = begin + spec.limit
    return UsageReportStatus(
        until=format_seconds(now),
        user=spec.user,
        shares=tuple(found[begin:end]),
        next=str(end) if end < len(found) else "",
    )


class _Shares:
    def __init__(
        self,
        queues: Mapping[str, Queue],
        published: Mapping[str, QueueUsage],
        config: SchedulerConfig,
        now: float,
    ) -> None:
        self._queues = queues
        self._family = Family(queues)
        plugin = FairShare(_arguments(config))
        self._usage = {
            name: _usage(published.get(name), plugin.weights_of(name), now) for name in queues
        }
        self._whole = dict.fromkeys(queues, 0.0)
        for name, users in self._usage.items():
            for above in self._family.with_ancestors(name):
                self._whole[above] += sum(users.values())
        self._total = sum(sum(users.values()) for users in self._usage.values())
        self._places = self._ranked()

    def rows(self) -> Iterator[ShareRow]:
        roots = [name for name in sorted(self._queues) if not self._family.parent(name)]
        yield from self._siblings(roots, 0)

    def _siblings(self, names: list[str], depth: int) -> Iterator[ShareRow]:
        weights = {name: float(self._queues[name].weight) for name in names}
        for row in _level(weights, self._whole, self._total):
            yield replace(row, queue=row.user, user="", depth=depth)
            yield from self._users(row.user, depth + 1)
            yield from self._siblings(list(self._family.children(row.user)), depth + 1)

    def _users(self, queue: str, depth: int) -> Iterator[ShareRow]:
        for row in _level(self._user_shares(queue), self._usage[queue], self._total):
            place = self._places[queue, row.user]
            yield replace(row, queue=queue, depth=depth, fair_share=place)

    def _user_shares(self, queue: str) -> dict[str, float]:
        return dict.fromkeys(self._usage[queue], 1.0) | user_shares(self._queues[queue])

    def _ranked(self) -> dict[tuple[str, str], float]:
        """Return the rank of each user of each queue: 1 for the first, then less."""
        below = {name: queue for name, queue in self._queues.items() if name != ROOT_QUEUE}
        tree = paths(
            {name: queue.parent for name, queue in below.items()},
            {name: sum(self._usage[name].values()) for name in below},
            {name: float(queue.weight) for name, queue in below.items()},
        )
        values = {
            (queue, user): (*tree.get(queue, ()), value)
            for queue in self._queues
            for user, value in usage_over_share(
                self._usage[queue], self._user_shares(queue)
            ).items()
        }
        ordered = sorted(values.values())
        first = {value: at for at, value in reversed(list(enumerate(ordered)))}
        return {key: (len(ordered) - first[value]) / len(ordered) for key, value in values.items()}


def _level(
    shares_: Mapping[str, float], usage: Mapping[str, float], total: float
) -> Iterator[ShareRow]:
    """Yield a row per sibling by name; its name is in `user`."""
    all_shares = sum(shares_.values())
    used = sum(usage.get(name, 0.0) for name in shares_)
    for name, share in sorted(shares_.items()):
        amount = usage.get(name, 0.0)
        yield ShareRow(
            queue="",
            user=name,
            raw_shares=share,
            norm_shares=_part(share, all_shares),
            raw_usage=round(amount, 3),
            norm_usage=_part(amount, total),
            effective_usage=_part(amount, used),
        )


def _part(amount: float, total: float) -> float:
    return round(amount / total, _DIGITS) if total else 0.0


_DIGITS: Final = 6


def _usage(
    message: QueueUsage | None, weights: Mapping[str, float], now: float
) -> dict[str, float]:
    if message is None:
        return {}
    kept = decay(max(0.0, now - message.at), message.half_life_s)
    return {
        user: kept * sum(weight * used.get(name, 0.0) for name, weight in weights.items())
        for user, used in message.users.items()
    }


def _arguments(config: SchedulerConfig) -> Mapping[str, object]:
    for tier in config.tiers:
        for option in tier.plugins:
            if option.name == FairShare.name:
                return option.arguments
    return {}
