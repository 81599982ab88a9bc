"""deviceshare (PL18): pods share GPU cards by memory, take whole ones (DV1), or parts (DV2, DV3).

Cards in MIG mode are given by instances (`vendors.mig`); those of models without geometries are
refused by their name. `NodeLockEnable` changes nothing: the scheduler writes no nodes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import floor
from typing import Any, ClassVar

import numpy as np

from pumice.plugins import (
    Arguments,
    Cluster,
    CodeArray,
    FloatArray,
    Hooks,
    IntArray,
    NodeRows,
    Reason,
    Task,
    TaskClass,
)
from services.scheduler.policy.arguments import BadArgument, boolean, integer, text
from services.scheduler.policy.vendors import gpus, mig, mind_chips, vgpus
from services.scheduler.policy.vendors.gpus import Gpus
from services.scheduler.policy.vendors.mig import read_geometries
from services.scheduler.policy.vendors.mindcluster import MindclusterNpus
from services.scheduler.policy.vendors.npu_cards import annotations_of, refuses
from services.scheduler.policy.vendors.npu_chips import read_table
from services.scheduler.policy.vendors.npus import Npus
from services.scheduler.policy.vendors.shared_cards import SharedCards
from services.scheduler.policy.vendors.vgpu_cards import CUT, SHARED
from services.scheduler.policy.vendors.vgpus import VGpus

_REASONS = (
    Reason("GpuShare no enough gpu memory on node"),
    Reason("GpuNumber no enough gpu number on node"),
)
_NO_MEMORY, _NO_CARDS = 1, 2
_VGPU_REASONS = (
    Reason("node not initialized with devicehamivgpu"),
    Reason("hami-vgpuDeviceSharing error"),
    Reason("no geometries of its GPUs in MIG mode are known", resolvable=False),
    Reason("its GPUs are in another mode than the pod requests", resolvable=False),
)
_UNREGISTERED, _NOT_FITTED, _CUT, _OTHER_MODE = 1, 2, 3, 4
_NPU_REASONS = (
    Reason("no ascend device available"),
    Reason("the pod asks for NPUs in parts that none is cut into", resolvable=False),
)
_NO_NPU, _NEVER = 1, 2
_CHIP_REASONS = (Reason("no Ascend 310P chip of MindCluster has room"),)
_NO_CHIP = 1
_POLICIES = ("", "binpack", "spread")
_RULES = "deviceshare.GPUExclusiveRules"
_TABLE = "deviceshare.VNPUs"

Labels = Mapping[str, str]


class DeviceShare:
    """Cards fit one by one, beyond the sum that the node advertises."""

    name = "deviceshare"
    states: ClassVar = (Gpus, VGpus, Npus, MindclusterNpus)

    def __init__(self, arguments: Arguments) -> None:
        """Take ways, policy, weight, rules, and tables of NPUs and of instances of GPUs.

        The latter are `deviceshare.GPUExclusiveRules`, `deviceshare.VNPUs` and
        `deviceshare.MIGGeometries`.

        Two modes at once are rejected, as in Volcano.
        """
        self._sharing = boolean(arguments, "deviceshare.GPUSharingEnable", default=False)
        self._number = boolean(arguments, "deviceshare.GPUNumberEnable", default=False)
        self._virtual = boolean(arguments, "deviceshare.VGPUEnable", default=False)
        boolean(arguments, "deviceshare.NodeLockEnable", default=False)
        if self._sharing and self._number:
            raise BadArgument(
                "deviceshare: GPUSharingEnable and GPUNumberEnable exclude each other"
            )
        if self._virtual and (self._sharing or self._number):
            raise BadArgument("deviceshare: VGPUEnable excludes GPUSharingEnable, GPUNumberEnable")
        self._mindcluster = boolean(
            arguments, "deviceshare.AscendMindClusterVNPUEnable", default=False
        )
        self._hami = boolean(arguments, "deviceshare.AscendHAMiVNPUEnable", default=False)
        self._npus = read_table(arguments.get(_TABLE))
        self._geometries = read_geometries(arguments.get(mig.ARGUMENT))
        self._policy = text(arguments, "deviceshare.SchedulePolicy")
        if self._policy not in _POLICIES:
            raise BadArgument(
                f"deviceshare.SchedulePolicy: {self._policy!r} is neither binpack nor spread"
            )
        self._weight = integer(arguments, "deviceshare.ScheduleWeight", 0)
        self._rules = _label_rules(arguments)

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add what is on, and what the binding tells the device plugin."""
        if self._virtual:
            self._share_virtual_cards(hooks, cluster)
        elif self._sharing or self._number:
            self._share_cards(hooks, cluster)
        if self._hami:
            self._share_npus(hooks, cluster)
        if self._mindcluster:
            self._share_chips(hooks, cluster)

    # --- cards -------------------------------------------------------------------------------

    def _share_cards(self, hooks: Hooks, cluster: Cluster) -> None:
        cards, names = cluster.store(Gpus), cluster.node_names

        def predicate(task_class: TaskClass, rows: NodeRows) -> CodeArray:
            request = cards.request_of(task_class)
            if not (request.memory if self._sharing else request.number):
                return np.zeros(len(rows), dtype=np.uint8)
            room = cards.room(request, rows.index, names)
            full = (room >= 0) & (room <= rows.extra)
            return full.astype(np.uint8) * (_NO_MEMORY if self._sharing else _NO_CARDS)

        def annotations(task: Task) -> Mapping[str, str]:
            taken = cards.settle_on(task)
            return gpus.annotations_of(taken, cluster.now) if taken else {}

        hooks.predicate(predicate, reasons=_REASONS)
        hooks.binding(annotations)

    # --- parts of cards ----------------------------------------------------------------------

    def _share_virtual_cards(self, hooks: Hooks, cluster: Cluster) -> None:
        cards = cluster.store(VGpus)
        cards.choose_by(
            now=cluster.now,
            policy=self._policy,
            matches=self._matches,
            geometries=self._geometries,
        )
        names = cluster.node_names
        registered = cards.registered(names)
        refusals = np.where(registered > 0, _NOT_FITTED, _UNREGISTERED)
        modes = np.array([cards.mode(name) for name in names], dtype=np.str_)
        refusals[modes == ""] = _CUT

        def places(task_class: TaskClass, rows: NodeRows) -> list[float | None]:
            return _places(cards, task_class, rows, names, np.flatnonzero(rows.pick(registered)))

        def predicate(task_class: TaskClass, rows: NodeRows) -> CodeArray:
            request = cards.request_of(task_class)
            if not request.requests:
                return np.zeros(len(rows), dtype=np.uint8)
            other = np.isin(modes, ["", request.mode or SHARED, request.mode or CUT], invert=True)
            codes = np.where(rows.pick(other), _OTHER_MODE, rows.pick(refusals))
            return _codes(places(task_class, rows), codes)

        def score(task_class: TaskClass, rows: NodeRows) -> FloatArray:
            if not cards.request_of(task_class).requests:
                return np.zeros(len(rows), dtype=np.float64)
            return _points(places(task_class, rows)) * self._weight

        def annotations(task: Task) -> Mapping[str, str]:
            taken = cards.settle_on(task) if cards.request_of(task.task_class).requests else ()
            return vgpus.annotations_of(taken, task.node, cluster.now) if taken else {}

        if self._rules:
            hooks.trait(vgpus.RULES, partial(self._rules_of, cards))
        hooks.predicate(predicate, reasons=_VGPU_REASONS)
        if self._policy and self._weight:
            hooks.node_score(score)
        hooks.binding(annotations)

    def _share_npus(self, hooks: Hooks, cluster: Cluster) -> None:
        cards, table, names = cluster.store(Npus), self._npus, cluster.node_names
        cards.choose_by(policy=self._policy, table=table)

        def places(task_class: TaskClass, rows: NodeRows) -> list[float | None]:
            return _places(cards, task_class, rows, names, np.arange(len(rows)))

        def predicate(task_class: TaskClass, rows: NodeRows) -> CodeArray:
            request = cards.request_of(task_class)
            if not request.requests:
                return np.zeros(len(rows), dtype=np.uint8)
            if refuses(table, request):
                return np.full(len(rows), _NEVER, dtype=np.uint8)
            return _codes(places(task_class, rows), np.full(len(rows), _NO_NPU, dtype=np.uint8))

        def score(task_class: TaskClass, rows: NodeRows) -> FloatArray:
            if not cards.request_of(task_class).requests:
                return np.zeros(len(rows), dtype=np.float64)
            return _points(places(task_class, rows)) * self._weight

        def annotations(task: Task) -> Mapping[str, str]:
            request = cards.request_of(task.task_class)
            taken = cards.settle_on(task) if request.requests else ()
            if not taken:
                return {}
            return annotations_of(taken, task.node, cluster.now, table, sliced=request.sliced)

        hooks.predicate(predicate, reasons=_NPU_REASONS)
        if self._weight:
            hooks.node_score(score)
        hooks.binding(annotations)

    def _share_chips(self, hooks: Hooks, cluster: Cluster) -> None:
        cards, names = cluster.store(MindclusterNpus), cluster.node_names
        cards.set_choice_policy()

        def places(task_class: TaskClass, rows: NodeRows) -> list[float | None]:
            return _places(cards, task_class, rows, names, np.arange(len(rows)))

        def predicate(task_class: TaskClass, rows: NodeRows) -> CodeArray:
            if not cards.request_of(task_class).cores:
                return np.zeros(len(rows), dtype=np.uint8)
            return _codes(places(task_class, rows), np.full(len(rows), _NO_CHIP, dtype=np.uint8))

        def score(task_class: TaskClass, rows: NodeRows) -> FloatArray:
            if not cards.request_of(task_class).cores:
                return np.zeros(len(rows), dtype=np.float64)
            return np.array([found or 0.0 for found in places(task_class, rows)]) * self._weight

        def annotations(task: Task) -> Mapping[str, str]:
            taken = cards.settle_on(task) if cards.request_of(task.task_class).cores else ()
            return mind_chips.annotations_of(taken, cluster.now) if taken else {}

        hooks.predicate(predicate, reasons=_CHIP_REASONS)
        if self._weight:
            hooks.node_score(score)
        hooks.binding(annotations)

    def _matches(self, labels: Labels) -> frozenset[int]:
        return frozenset(
            number for number, rule in enumerate(self._rules) if rule.items() <= labels.items()
        )

    def _rules_of(self, cards: VGpus, task: Task) -> str:
        matched = self._matches(task.labels) if cards.request_of(task.task_class).requests else ()
        return ",".join(str(number) for number in sorted(matched))


def _places(
    cards: SharedCards[Any],
    task_class: TaskClass,
    rows: NodeRows,
    names: Sequence[str],
    there: IntArray,
) -> list[float | None]:
    """Return the score of each row, None where its cards do not suffice; only `there` has any."""
    found: list[float | None] = [None] * len(rows)
    columns, extra = rows.index[there].tolist(), rows.extra[there].tolist()
    scores = cards.scores(task_class, [names[column] for column in columns], extra)
    for row, score in zip(there.tolist(), scores, strict=True):
        found[row] = score
    return found


def _codes(places: Sequence[float | None], refusals: IntArray) -> CodeArray:
    fits = np.array([score is not None for score in places], dtype=np.bool_)
    return np.where(fits, 0, refusals).astype(np.uint8)


def _points(places: Sequence[float | None]) -> FloatArray:
    return np.array([floor((found or 0.0) + 0.5) for found in places], dtype=np.float64)


def _label_rules(arguments: Arguments) -> tuple[Labels, ...]:
    """Return the rules of exclusive cards: a pod with all labels of one shares with no other."""
    stated = arguments.get(_RULES) or []
    if not isinstance(stated, list):
        raise BadArgument(f"{_RULES}: {stated!r} is no list of labels")
    for rule in stated:
        if not (
            rule and isinstance(rule, Mapping) and all(isinstance(v, str) for v in rule.values())
        ):
            raise BadArgument(f"{_RULES}: {rule!r} is no mapping of labels to texts")
    return tuple(stated)
