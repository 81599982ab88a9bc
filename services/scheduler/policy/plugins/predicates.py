"""predicates (PL07): which nodes a pod may run on at all, after Kubernetes' own filters.

Here: cordoned nodes, node selector and affinity, taints, host ports, number of pods. A pod with a
hard constraint that is not implemented (pod affinity, hard spreading) is placed nowhere and told
why.
"""

import numpy as np

from pumice.plugins import Arguments, Cluster, CodeArray, Hooks, Reason
from services.scheduler.engine.dimensions import PODS_DIM
from services.scheduler.engine.rows import Rows
from services.scheduler.engine.shapes import NOT_HONOURED, TaskClass
from services.scheduler.policy.arguments import boolean
from services.scheduler.policy.tolerating import tolerates
from shared.api.selectors import Taint

_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})

_UNSCHEDULABLE = Reason("node(s) were unschedulable", resolvable=False)
_AFFINITY = Reason("node(s) didn't match Pod's node affinity/selector", resolvable=False)
_TAINTED = Reason("node(s) had untolerated taint(s)", resolvable=False)
_PORTS = Reason("node(s) didn't have free ports for the requested pod ports")
_PODS = Reason("node(s) pod number exceeded")


class Predicates:
    """Kubernetes' filters over all nodes at once."""

    name = "predicates"

    def __init__(self, arguments: Arguments) -> None:
        """Take `predicate.*Enable`; cordoned nodes and the number of pods are always checked."""
        self._affinity = boolean(arguments, "predicate.NodeAffinityEnable", default=True)
        self._ports = boolean(arguments, "predicate.NodePortsEnable", default=True)
        self._taints = boolean(arguments, "predicate.TaintTolerationEnable", default=True)
        self._pod_affinity = boolean(arguments, "predicate.PodAffinityEnable", default=True)
        self._spread = boolean(arguments, "predicate.PodTopologySpreadEnable", default=True)

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:  # noqa: ARG002 - asks nothing
        """Add the filters in Kubernetes' order: the first that refuses a node names the reason."""
        hooks.predicate(_number_of_pods, reasons=[_PODS])
        hooks.predicate(_cordoned, reasons=[_UNSCHEDULABLE], static=True)
        if self._affinity:
            hooks.predicate(_node_affinity, reasons=[_AFFINITY], static=True)
        if self._taints:
            hooks.predicate(_untolerated, reasons=[_TAINTED], static=True)
        if self._ports:
            hooks.predicate(_ports_taken, reasons=[_PORTS])
        reasons = [
            Reason(f"no node is tried for a pod with {text}: not implemented", resolvable=False)
            for text in NOT_HONOURED
        ]
        hooks.predicate(self._not_honoured, reasons=reasons, static=True)

    def _not_honoured(self, shape: TaskClass, rows: Rows) -> CodeArray:
        switched_off = set()
        if not self._pod_affinity:
            switched_off |= {NOT_HONOURED[0], NOT_HONOURED[1]}
        if not self._spread:
            switched_off.add(NOT_HONOURED[2])
        for code, text in enumerate(NOT_HONOURED, start=1):
            if text in shape.not_honoured and text not in switched_off:
                return np.full(len(rows), code, dtype=np.uint8)
        return np.zeros(len(rows), dtype=np.uint8)


def _number_of_pods(_: TaskClass, rows: Rows) -> CodeArray:
    full = rows.requested(PODS_DIM) >= rows.allocatable(PODS_DIM)
    return full.astype(np.uint8)


def _cordoned(shape: TaskClass, rows: Rows) -> CodeArray:
    if tolerates(shape.tolerations, _CORDONED):
        return np.zeros(len(rows), dtype=np.uint8)
    return rows.pick(rows.attributes.unschedulable()).astype(np.uint8)


def _node_affinity(shape: TaskClass, rows: Rows) -> CodeArray:
    admitted = rows.attributes.matching(shape.node_selector)
    affinity = shape.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is not None:
        admitted = admitted & rows.attributes.selected(required)
    return (~rows.pick(admitted)).astype(np.uint8)


def _untolerated(shape: TaskClass, rows: Rows) -> CodeArray:
    refused = rows.attributes.taints(
        lambda taints: any(
            taint.effect in _HARD_EFFECTS and not tolerates(shape.tolerations, taint)
            for taint in taints
        )
    )
    return rows.pick(refused).astype(np.uint8)


def _ports_taken(shape: TaskClass, rows: Rows) -> CodeArray:
    if not shape.host_ports:
        return np.zeros(len(rows), dtype=np.uint8)
    return (rows.ports_taken() | (rows.extra > 0)).astype(np.uint8)
