"""Nodes that a pod's node affinity and tolerations admit; shared by predicates and spreading."""

from collections.abc import Sequence

import numpy as np

from pumice.plugins import BoolArray, TaskClass
from services.scheduler.engine.narrowing import engine_record
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.tasks.task import TaskClass as EngineTaskClass
from shared.api.selectors import NodeAffinity, Taint, TaintEffect, Toleration, TolerationOperator


def node_affinity(task_class: TaskClass) -> NodeAffinity | None:
    """Return the node affinity of a class's pods."""
    return engine_record(task_class, EngineTaskClass).node_affinity


def tolerations(task_class: TaskClass) -> Sequence[Toleration]:
    """Return the tolerations of a class's pods."""
    return engine_record(task_class, EngineTaskClass).tolerations


def tolerates(stated: Sequence[Toleration], taint: Taint) -> bool:
    """Tell whether one of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in stated)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == TolerationOperator.EXISTS:
        return True
    return bool(toleration.key) and toleration.value == taint.value


_HARD_EFFECTS = frozenset({TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE})


def by_affinity(task_class: TaskClass, attributes: NodeAttributes) -> BoolArray:
    """Return the nodes that node selector and required node affinity admit."""
    admitted = attributes.matching(task_class.node_selector)
    affinity = node_affinity(task_class)
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return admitted if required is None else admitted & attributes.selected(required)


def by_taints(task_class: TaskClass, attributes: NodeAttributes) -> BoolArray:
    """Return the nodes whose hard taints are tolerated."""
    stated = tolerations(task_class)
    refused = attributes.taints(
        lambda taints: any(
            taint.effect in _HARD_EFFECTS and not tolerates(stated, taint) for taint in taints
        )
    )
    admitted: BoolArray = refused == 0
    return admitted


def nodes_with(keys: list[str], attributes: NodeAttributes) -> BoolArray:
    """Return the nodes that have all these labels."""
    result = np.ones(len(attributes.names), dtype=np.bool_)
    for key in keys:
        result &= attributes.numbers(key) >= 0
    return result
