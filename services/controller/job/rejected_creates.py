"""Creates that the API server rejects for now: names in use, and exceeded quotas.

Both pass without action of the owner, so they do not count as refusals (J13): the job goes on with
its existing pods, reports why the rest waits, and retries with back-off. When a pod of the job
ends, or a ResourceQuota gets more room, the rest is retried at once, but not within `FIRST_S` of
the last try.

Part of a job's record (`records`); the executor records rejections, `plan` skips pods that are not
due, and `job_events` puts the reason into the status. The PodGroup and the companions of a job wait
in the same way, noted as `<kind> <name>`; no pod is made while one of them waits.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from services.controller.job.status import NAMES_IN_USE, QUOTA_EXCEEDED, REFUSED

FIRST_S: Final = 1.0
LONGEST_S: Final = 10.0
_SHOWN: Final = 3
_QUOTA: Final = re.compile(r"exceeded quota: (.*)", re.DOTALL)


def quota_of(refusal: str) -> str:
    """Return the message about the ResourceQuota that forbids a create; "" if none does."""
    found = _QUOTA.search(refusal)
    return found[1] if found else ""


def is_no_pod(name: str) -> bool:
    """Return whether a recorded name is of the PodGroup or a companion: `<kind> <name>`."""
    return " " in name


class RejectedCreates:
    """The objects of one job whose creation was rejected, and when it is retried."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """Name that is in use → the object that has it."""
        self._quotas: dict[str, str] = {}
        """Pod → the API server's message on the quota."""
        self.stopped_tasks: dict[str, str] = {}
        """Task with a pod over quota in the present stage → the API server's message."""
        self.refusal = ""
        """Message of the last permanent refusal of an object by the API server."""
        self.until = 0.0
        """Monotonic time in seconds of the next try."""
        self._wait_s = FIRST_S
        self._tried_at = -FIRST_S
        self.reported = ("", "")
        """Reason and message of the last event."""

    def __bool__(self) -> bool:
        return bool(self._names or self._quotas)

    def name_in_use(self, name: str, by: str) -> None:
        """Record that a name is not free yet."""
        self._names[name] = by

    def over_quota(self, name: str, quota: str) -> None:
        """Record that a quota forbids an object at present."""
        self._quotas[name] = quota

    def made(self, name: str) -> None:
        """Record that an object was made."""
        self._names.pop(name, None)
        self._quotas.pop(name, None)

    @property
    def is_over_quota(self) -> bool:
        """Whether a quota forbids an object of the job at present."""
        return bool(self._quotas)

    def keep_only(self, keeps: Callable[[str], bool]) -> None:
        """Forget what is no longer desired."""
        for delays in (self._names, self._quotas):
            for name in [name for name in delays if not keeps(name)]:
                del delays[name]

    def quota_may_be_free(self) -> None:
        """Retry pods over quota at once, because a pod of the job has ended."""
        if self._quotas:
            self.until, self._wait_s = 0.0, FIRST_S

    def quota_has_more_room(self) -> None:
        """Retry pods over quota soon, because a quota of the namespace has room or was deleted.

        Each pod that ends in the namespace makes room, and other jobs may take it. So a job retries
        at most once in `FIRST_S`.
        """
        if self._quotas:
            self.until, self._wait_s = min(self.until, self._tried_at + FIRST_S), FIRST_S

    def tried(self, now: float) -> None:
        """Set when the next try is due, after one."""
        self._tried_at = now
        if not self:
            self._wait_s = FIRST_S
            return
        self.until = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_S)

    def not_due(self, now: float) -> frozenset[str]:
        """Return the names that are not due."""
        return frozenset((*self._names, *self._quotas)) if now < self.until else frozenset()

    def why(self) -> tuple[str, str]:
        """Return reason and message for the owner; two empty strings if nothing waits."""
        parts, reason = [], ""
        if self.refusal:
            reason = REFUSED
            parts.append(self.refusal)
        if self._names:
            reason = reason or NAMES_IN_USE
            by = next(iter(self._names.values()))
            parts.append(f"{_listed(self._names)} waits until the name is free: {by}")
        if self._quotas:
            reason = reason or QUOTA_EXCEEDED
            quota = next(iter(self._quotas.values()))
            number = len(self._quotas)
            named = number == 1 or any(is_no_pod(name) for name in self._quotas)
            what = _listed(self._quotas) if named else f"{number} pods"
            parts.append(f"{what} {'wait' if number > 1 else 'waits'} for ResourceQuota {quota}")
        return reason, "; ".join(parts)


def _listed(names: Mapping[str, str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    rest = len(names) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
