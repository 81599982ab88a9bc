"""Bare pods and their owners by group, folded from facts: what the PodGroup controller reads.

The key of a group is `namespace/podgroup-<uid of the owner>`. Only uids are compared: which kinds
of owners are watched is the cache's affair, a pod of an owner that is not is served all the same.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from services.controller.podgroup.groups import GroupFacts, group_name, is_bare
from shared.api.core import Pod
from shared.api.scheduling import PodGroup
from shared.api.workloads import Workload


class BareIndex:
    """Pods, owners and the groups that they belong to; part of the replica."""

    def __init__(self, *, scheduler_names: Collection[str]) -> None:
        self._scheduler_names = tuple(scheduler_names)
        self._members: dict[str, dict[str, Pod]] = defaultdict(dict)
        """Group key → pod key → pod."""
        self._group_of: dict[str, str] = {}
        """Pod key → group key."""
        self._owners: dict[tuple[str, str], Workload] = {}
        """(token of the kind, key) → owner."""
        self._by_group: dict[str, Workload] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of all groups that have pods or an owner that is known."""
        return iter(dict.fromkeys((*self._members, *self._by_group)))

    def __contains__(self, key: str) -> bool:
        """Whether anything is known of a group."""
        return key in self._members or key in self._by_group

    def facts(self, key: str, groups: Mapping[str, PodGroup]) -> GroupFacts:
        """Return what is known of one group."""
        return GroupFacts(
            pods=tuple(pod for _, pod in sorted(self._members.get(key, {}).items())),
            owner=self._by_group.get(key),
            group=groups.get(key),
        )

    def uids(self) -> Iterator[tuple[str, str]]:
        """Yield (key, uid) of each bare pod."""
        for members in self._members.values():
            for key, pod in members.items():
                yield key, pod.metadata.uid

    def owners(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield ((token, key), uid) of each owner."""
        for place, owner in self._owners.items():
            yield place, owner.metadata.uid

    def put_pod(self, pod: Pod) -> list[str]:
        """Take a pod; return the keys of the groups that it touches."""
        key = pod.metadata.key
        if not is_bare(pod, self._scheduler_names) or pod.metadata.deletion_timestamp is not None:
            return self.drop_pod(key)
        group = f"{pod.metadata.namespace}/{group_name(pod)}"
        before = self._members[group].get(key)
        if before is not None and _is_older(pod, before):
            return []
        touched = self.drop_pod(key) if self._group_of.get(key) not in {None, group} else []
        self._members[group][key] = pod
        self._group_of[key] = group
        return [*touched, group]

    def drop_pod(self, key: str, uid: str = "") -> list[str]:
        """Forget a pod, whatever its uid or the one with that uid; return the touched group."""
        group = self._group_of.get(key)
        if group is None or (uid and self._members[group][key].metadata.uid != uid):
            return []
        del self._group_of[key]
        members = self._members[group]
        del members[key]
        if not members:
            del self._members[group]
        return [group]

    def put_owner(self, token: str, owner: Workload) -> list[str]:
        """Take an owner; return the key of its group."""
        place = (token, owner.metadata.key)
        before = self._owners.get(place)
        if before is not None:
            if _is_older(owner, before):
                return []
            self._by_group.pop(_group_of(before), None)
        group = _group_of(owner)
        self._owners[place] = self._by_group[group] = owner
        return [group]

    def drop_owner(self, token: str, key: str, uid: str) -> None:
        """Forget an owner; its group goes with it, by its owner reference."""
        known = self._owners.get((token, key))
        if known is not None and known.metadata.uid == uid:
            del self._owners[token, key]
            self._by_group.pop(_group_of(known), None)


def _group_of(owner: Workload) -> str:
    return f"{owner.metadata.namespace}/podgroup-{owner.metadata.uid}"


def _is_older(found: Pod | Workload, known: Pod | Workload) -> bool:
    """Whether a fact says of the same object what was known before, or less."""
    new, old = found.metadata, known.metadata
    return new.uid == old.uid and int(new.resource_version or 0) <= int(old.resource_version or 0)
