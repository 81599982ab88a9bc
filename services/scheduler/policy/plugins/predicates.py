"""predicates (PL07): which nodes a pod may run on at all, after Kubernetes' own filters.

Cordoned nodes, node selector and affinity, taints, host ports, number of pods, pod affinity and
anti-affinity, volumes, topology spread; and devices by claim, which are chosen with the node.
"""

from functools import partial

import numpy as np

from pumice.plugins import Arguments, Cluster, CodeArray, Hooks, NodeRows, Nodes, Reason, TaskClass
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.nodes.pod_affinity import PodAffinityIndex
from services.scheduler.engine.resources.dimensions import PODS_DIM
from services.scheduler.policy.arguments import boolean
from services.scheduler.policy.device_claims import CLAIM_REASONS, DeviceClaims
from services.scheduler.policy.eligible import by_affinity, by_taints, tolerates, tolerations
from services.scheduler.policy.inter_pod_affinity import REASONS as AFFINITY_REASONS
from services.scheduler.policy.inter_pod_affinity import InterPodAffinity
from services.scheduler.policy.spreading import REASONS as SPREADING_REASONS
from services.scheduler.policy.spreading import Spreading
from services.scheduler.policy.storage import (
    BINDING_REASONS,
    LIMIT_REASONS,
    RESTRICTION_REASONS,
    ZONE_REASONS,
    VolumePredicates,
)
from shared.api.selectors import Taint, TaintEffect

_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)

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
        self._limits = boolean(arguments, "predicate.NodeVolumeLimitsEnable", default=True)
        self._zones = boolean(arguments, "predicate.VolumeZoneEnable", default=True)
        self._binding = boolean(arguments, "predicate.VolumeBindingEnable", default=True)
        self._spread = boolean(arguments, "predicate.PodTopologySpreadEnable", default=True)

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add the filters in Kubernetes' order: the first that refuses a node names the reason."""
        attributes, pod_affinity = cluster.store(NodeAttributes), cluster.store(PodAffinityIndex)
        hooks.predicate(_number_of_pods, reasons=[_PODS])
        hooks.predicate(partial(_cordoned, cluster.nodes), reasons=[_UNSCHEDULABLE], static=True)
        if self._affinity:
            hooks.predicate(partial(_node_affinity, attributes), reasons=[_AFFINITY], static=True)
        if self._taints:
            hooks.predicate(partial(_untolerated, attributes), reasons=[_TAINTED], static=True)
        if self._ports:
            hooks.predicate(_ports_taken, reasons=[_PORTS])
        if self._pod_affinity:
            affinity = InterPodAffinity(pod_affinity, attributes)
            hooks.predicate(affinity.on_single_nodes, reasons=AFFINITY_REASONS)
            hooks.cross_node_predicate(affinity.over_domains, reasons=AFFINITY_REASONS)
        claims = DeviceClaims(cluster)
        hooks.cross_node_predicate(claims.predicate, reasons=CLAIM_REASONS)
        hooks.devices(claims.settle_on)
        storage = VolumePredicates(cluster)
        if self._limits:
            hooks.cross_node_predicate(storage.limits, reasons=LIMIT_REASONS)
        if self._zones:
            hooks.cross_node_predicate(storage.zones, reasons=ZONE_REASONS)
        if self._spread:
            spreading = Spreading(pod_affinity, attributes)
            hooks.cross_node_predicate(spreading.hard_constraints, reasons=SPREADING_REASONS)
        hooks.cross_node_predicate(storage.restrictions, reasons=RESTRICTION_REASONS)
        if self._binding:
            hooks.cross_node_predicate(storage.binding, reasons=BINDING_REASONS)
            hooks.claims(storage.settle_on)


def _number_of_pods(_: TaskClass, rows: NodeRows) -> CodeArray:
    full = rows.requested(PODS_DIM) >= rows.allocatable(PODS_DIM)
    return full.astype(np.uint8)


def _cordoned(nodes: Nodes, task_class: TaskClass, rows: NodeRows) -> CodeArray:
    if tolerates(tolerations(task_class), _CORDONED):
        return np.zeros(len(rows), dtype=np.uint8)
    return rows.pick(nodes.unschedulable).astype(np.uint8)


def _node_affinity(attributes: NodeAttributes, task_class: TaskClass, rows: NodeRows) -> CodeArray:
    return (~rows.pick(by_affinity(task_class, attributes))).astype(np.uint8)


def _untolerated(attributes: NodeAttributes, task_class: TaskClass, rows: NodeRows) -> CodeArray:
    return (~rows.pick(by_taints(task_class, attributes))).astype(np.uint8)


def _ports_taken(task_class: TaskClass, rows: NodeRows) -> CodeArray:
    if not task_class.host_ports:
        return np.zeros(len(rows), dtype=np.uint8)
    return (rows.ports_taken() | (rows.extra > 0)).astype(np.uint8)
