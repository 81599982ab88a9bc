"""Ascend 310P NPUs of nodes and which pods have parts of them, as MindCluster reports (DV3).

Which chips a node has is in its annotations; which of them are broken, MindCluster's ClusterD
says in ConfigMaps, each for many nodes.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, TypeVar

import msgspec
from typing_extensions import override

from pumice.plugins import Fold, Task, TaskClass
from services.scheduler.policy.vendors.cards import CardChoice, CardUsage, Shares, each
from services.scheduler.policy.vendors.mind_chips import (
    APART,
    REAL,
    ChipWant,
    DeviceList,
    MindNodeStatus,
    PluginWork,
    chips_of,
    choose,
    groups_in,
    shown_chips,
)
from services.scheduler.policy.vendors.shared_cards import NodeCards, SharedCards
from shared.api import kinds
from shared.api.core import ConfigMap, Node, Pod

_DEVICES: Final = "cluster-info-device-"
_STATUSES: Final = "cluster-info-node-cm"
_OF_DEVICES: Final = "mindx-dl-deviceinfo-"
_OF_NODES: Final = "mindx-dl-nodeinfo-"

_T = TypeVar("_T")


class MindclusterNpus(SharedCards[ChipWant]):
    """The NPUs of all nodes that MindCluster looks after."""

    name: ClassVar[str] = "mindcluster"

    def __init__(self, *, on: bool = False) -> None:
        """Read what MindCluster reports if it is `on`; if not, no chip is known to be healthy."""
        super().__init__(ChipWant())
        self.on: Final = on
        self._known: dict[str, Node] = {}
        self._device_lists: dict[str, Mapping[str, DeviceList]] = {}
        """ConfigMap → node → its entry."""
        self._apart: dict[str, frozenset[str]] = {}
        """ConfigMap → nodes that are to get no pods."""
        self._real: dict[str, str] = {}
        """Pod uid → the part that was made for it."""
        self._fresh: set[str] = set()
        """Pods that this session has placed."""

    @override
    def set_choice_policy(self, policy: object = None) -> None:
        super().set_choice_policy(None)
        self._fresh = set()

    @override
    def demand(self, pod: Pod) -> ChipWant | None:
        """Return what a pod asks for; one that only shows chips counts on them, too."""
        return ChipWant.of(pod) if self.on else None

    # --- facts -------------------------------------------------------------------------------

    @override
    def folds(self) -> Mapping[str, Fold]:
        """Read nodes, and MindCluster's ConfigMaps about them."""
        if not self.on:
            return {}
        config_maps = Fold(self.put_config_map, self.remove_config_map)
        return {**super().folds(), kinds.NPUINFO.token: config_maps}

    def put_config_map(self, key: str, config_map: ConfigMap) -> None:
        """Store the entries of a ConfigMap."""
        name = config_map.metadata.name
        before = self._nodes_in(key)
        self._device_lists[key], self._apart[key] = {}, frozenset()
        if name.startswith(_DEVICES):
            self._device_lists[key] = dict(
                _read(config_map.data.get(name, ""), _OF_DEVICES, DeviceList)
            )
        elif name == _STATUSES:
            found = _read(config_map.data.get(name, ""), _OF_NODES, MindNodeStatus)
            self._apart[key] = frozenset(node for node, of in found if of.status == APART)
        self._register_again(before | self._nodes_in(key))

    def remove_config_map(self, key: str) -> None:
        """Forget the entries of a ConfigMap that is gone."""
        before = self._nodes_in(key)
        self._device_lists.pop(key, None)
        self._apart.pop(key, None)
        self._register_again(before)

    def _nodes_in(self, key: str) -> set[str]:
        return {*self._device_lists.get(key, ()), *self._apart.get(key, ())}

    def _register_again(self, names: set[str]) -> None:
        for name in sorted(names & self._known.keys()):
            self.put(name, self._known[name])

    @override
    def remove(self, name: str) -> None:
        self._known.pop(name, None)
        super().remove(name)

    @override
    def register(self, found: NodeCards, node: Node) -> None:
        name = node.metadata.name
        self._known[name] = node
        listed = next(
            (of[name] for _, of in sorted(self._device_lists.items()) if name in of), None
        )
        if not any(name in nodes for nodes in self._apart.values()):
            found.cards = chips_of(node, listed)

    @override
    def shown_by(self, annotations: Mapping[str, str]) -> Shares:
        return shown_chips(annotations)

    @override
    def join(self, task: Task, pod: Pod) -> None:
        super().join(task, pod)
        if real := pod.metadata.annotations.get(REAL):
            self._real[task.uid] = real

    @override
    def leave(self, task: Task, *, gone: bool) -> None:
        super().leave(task, gone=gone)
        self._real.pop(task.uid, None)

    @override
    def count(self, task: Task, sign: int) -> None:
        new = task.uid not in self._shown and task.uid not in self._chosen
        super().count(task, sign)
        if sign > 0 and new:
            self._fresh.add(task.uid)

    # --- choice ------------------------------------------------------------------------------

    @override
    def key_of(self, task_class: TaskClass) -> None:
        """Return none: the work of a node's device plugin counts as well, so nothing is cached."""

    @override
    def choose(
        self, node: NodeCards, usage: Mapping[str, CardUsage], request: ChipWant, closed: set[str]
    ) -> CardChoice | None:
        return choose(node.cards, usage, request, self._plugin_work(node, usage))

    def _plugin_work(self, node: NodeCards, usage: Mapping[str, CardUsage]) -> PluginWork:
        used, templates, changing = node.usage(), set[str](), set[str]()
        groups: dict[str, set[str]] = {}
        for uid, assigned in node.pods.items():
            real = self._real.get(uid, "")
            for share in each(assigned.shares):
                if real:
                    groups.setdefault(share.uuid, set()).add(groups_in(real))
                    continue
                templates.add(share.type)
                if uid not in self._fresh:
                    changing.add(share.uuid)
        for uuid, now in usage.items():
            if now.slots > used[uuid].slots:  # by pods that this one is asked to come after
                templates |= now.types
        return PluginWork(
            templates, changing, {uuid: len(of - {""}) for uuid, of in groups.items()}
        )


def _read(text: str, prefix: str, form: type[_T]) -> Iterator[tuple[str, _T]]:
    """Yield node and entry of a JSON object; what cannot be read is left out."""
    try:
        listed = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return
    for key, raw in listed.items():
        try:
            yield key.removeprefix(prefix), msgspec.json.decode(raw, type=form)
        except (ValueError, RecursionError):
            continue
