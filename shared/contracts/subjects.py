"""Subjects: where each message goes. Built here and nowhere else.

All subjects of one cluster share the prefix `pumice.<cluster>`. Names of Kubernetes objects
become one subject token each; characters that NATS gives a meaning to are escaped (`%2E` for a
dot), so that `node-1.example.com` stays one token and `*` can be used to select.
"""

from typing import Final
from zlib import crc32

import msgspec

NO_NAMESPACE: Final = "_"
"""Token in place of the namespace of a cluster-scoped object; not a valid namespace name."""

SINGLE_PODS: Final = "agent-scheduler"
"""Role of a scheduler of single pods: it has a leader of its own beside that for groups."""

_RESERVED: Final = frozenset(".*>% \t\r\n")


def escape(name: str) -> str:
    """Return `name` as one subject token; `unescape` gives it back."""
    if name == "":
        return NO_NAMESPACE
    if _RESERVED.isdisjoint(name):
        return name
    return "".join(f"%{ord(c):02X}" if c in _RESERVED else c for c in name)


def unescape(token: str) -> str:
    """Return the name of a token made by `escape`."""
    if token == NO_NAMESPACE:
        return ""
    head, *rest = token.split("%")
    return head + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)


def key_of(namespace: str, name: str) -> str:
    """Return the key `namespace/name`, or `name` for a cluster-scoped object."""
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """Return (namespace, name) of a key; the namespace of a cluster-scoped object is empty."""
    namespace, slash, name = key.rpartition("/")
    return (namespace, name) if slash else ("", key)


class Subjects(msgspec.Struct, frozen=True, kw_only=True):
    """The subjects of one cluster."""

    cluster: str
    """Name of the cluster: one token, also part of the stream names."""

    @property
    def prefix(self) -> str:
        """Return the common prefix of all subjects."""
        return f"pumice.{escape(self.cluster)}"

    def state(self, kind: str, key: str) -> str:
        """Return the subject of one object's fact; `kind` is a token of `shared.api.kinds`."""
        namespace, name = split_key(key)
        return f"{self.prefix}.state.{kind}.{escape(namespace)}.{escape(name)}"

    def state_kind(self, kind: str) -> str:
        """Return the wildcard over all facts of one kind."""
        return f"{self.prefix}.state.{kind}.>"

    @property
    def marker(self) -> str:
        """Return the subject of the cache's synced marker (on the STATE stream)."""
        return f"{self.prefix}.state.marker"

    def leader(self, stream: str, role: str = "") -> str:
        """Return the subject whose last sequence fences `stream` (`state` or `command`).

        Leaders of another `role` publish to the same stream with their own fencing token.
        """
        return f"{self.prefix}.{stream}.{role}-leader" if role else f"{self.prefix}.{stream}.leader"

    def command(self, partition: int) -> str:
        """Return the subject of the intents of one partition."""
        return f"{self.prefix}.command.p{partition}"

    def desired(self, partition: int, kind: str, key: str) -> str:
        """Return the subject of the desired status of one object."""
        namespace, name = split_key(key)
        return f"{self.prefix}.desired.p{partition}.{kind}.{escape(namespace)}.{escape(name)}"

    def desired_partition(self, partition: int) -> str:
        """Return the wildcard over one partition of DESIRED."""
        return f"{self.prefix}.desired.p{partition}.>"

    def waiting(self, key: str) -> str:
        """Return the subject of the explanation of a PodGroup's wait."""
        namespace, name = split_key(key)
        return f"{self.prefix}.waiting.{escape(namespace)}.{escape(name)}"

    def usage(self, queue: str) -> str:
        """Return the subject of the decayed usage of a queue's users."""
        return f"{self.prefix}.usage.{escape(queue)}"

    @property
    def usages(self) -> str:
        """Return the wildcard over the decayed usage of all queues."""
        return f"{self.prefix}.usage.*"

    @property
    def reports(self) -> str:
        """Return the subject on which accounting takes queries; no stream keeps them."""
        return f"{self.prefix}.reports"

    def outcome(self, partition: int) -> str:
        """Return the subject of the outcomes of one command partition."""
        return f"{self.prefix}.outcome.p{partition}"

    @property
    def outcomes(self) -> str:
        """Return the wildcard over everything on OUTCOME, poison included."""
        return f"{self.prefix}.outcome.*"

    @property
    def poison(self) -> str:
        """Return the subject of commands that were quarantined (on the OUTCOME stream)."""
        return f"{self.prefix}.outcome.poison"

    def lease(self, name: str) -> str:
        """Return the subject of one lease."""
        return f"{self.prefix}.lease.{escape(name)}"

    def quarantine(self, role: str = "") -> str:
        """Return the subject of the jobs that schedulers of a role quarantine, on LEASE."""
        return self.lease(f"{role or 'scheduler'}-quarantine")

    def member(self, service: str, instance: str) -> str:
        """Return the subject on which one process announces itself."""
        return f"{self.prefix}.member.{service}.{escape(instance)}"

    def job_lease(self, partition: int) -> str:
        """Return the subject of the lease of one partition of the jobs."""
        return self.lease(f"controller-p{partition}")

    def members_of(self, service: str) -> str:
        """Return the wildcard over the announcements of one service's processes."""
        return f"{self.prefix}.member.{service}.*"

    @property
    def presence_prefix(self) -> str:
        """Return the prefix of presence subjects, on which running processes listen."""
        return f"{self.prefix}.presence."

    def presences_of(self, service: str) -> str:
        """Return the wildcard over the presence subjects of one service's processes."""
        return f"{self.presence_prefix}{service}.*"

    def presence(self, service: str, holder: str) -> str:
        """Return the subject on which one run of a process listens while it is connected."""
        return f"{self.presence_prefix}{service}.{escape(holder)}"

    @property
    def members(self) -> str:
        """Return the wildcard over all announcements."""
        return f"{self.prefix}.member.>"

    def event(self, event_type: str, key: str) -> str:
        """Return the subject of one CloudEvent about the object `key`: its type and namespace.

        The name is in the event alone, because a server holds each subject in memory for as long
        as one of its messages is kept.
        """
        return f"{self.prefix}.events.{event_type}.{escape(split_key(key)[0])}"

    def events_about(self, event_type: str) -> str:
        """Return the wildcard over the events of one type."""
        return f"{self.prefix}.events.{event_type}.*"

    def events_of(self, namespace: str) -> str:
        """Return the wildcard over the events about objects of one namespace."""
        return f"{self.prefix}.events.*.*.{escape(namespace)}"

    def republished(self, subject: str) -> str:
        """Return the subject under which the server republishes a stored event for subscribers.

        Messages of services reach the stream's account through an import, and NATS does not export
        imported messages again; republished ones it does.
        """
        return f"told.{subject}"

    @property
    def admissions(self) -> str:
        """Return the wildcard over republished admissions of PodGroups."""
        return self.republished(self.events_about("gang.admitted"))

    @property
    def budget_warnings(self) -> str:
        """Return the wildcard over republished events of budgets."""
        return self.republished(self.events_about("budget.reached"))

    @property
    def everything(self) -> str:
        """Return the wildcard over the whole cluster."""
        return f"{self.prefix}.>"


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key: stable over processes, hash seeds and versions of Python."""
    return crc32(key.encode()) % partitions
