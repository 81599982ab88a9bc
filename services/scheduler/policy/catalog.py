"""The catalogue: every action and plugin by its Volcano name; a list to read, no registry."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Final

from pumice.plugins import Arguments, Plugin, PolicyState
from services.scheduler.engine.session.session import Session
from services.scheduler.foreign import ForeignPlugin
from services.scheduler.policy.actions import (
    allocate,
    backfill,
    defrag,
    enqueue,
    gangpreempt,
    gangreclaim,
    preempt,
    reclaim,
    shuffle,
)
from services.scheduler.policy.actions.defrag import DefragOptions
from services.scheduler.policy.actions.gang_evictions import GangOptions
from services.scheduler.policy.actions.preempt import PreemptArguments
from services.scheduler.policy.devices.selectors import Evaluator
from services.scheduler.policy.plugins.autoscaling import Autoscaling
from services.scheduler.policy.plugins.binpack import Binpack
from services.scheduler.policy.plugins.budgets import BudgetsPlugin
from services.scheduler.policy.plugins.capacity import Capacity
from services.scheduler.policy.plugins.cdp import Cdp
from services.scheduler.policy.plugins.conformance import Conformance
from services.scheduler.policy.plugins.drf import Drf
from services.scheduler.policy.plugins.extender import Extender
from services.scheduler.policy.plugins.fairshare import FairShare
from services.scheduler.policy.plugins.gang import Gang
from services.scheduler.policy.plugins.limits import LimitsPlugin
from services.scheduler.policy.plugins.minruntime import MinRuntime
from services.scheduler.policy.plugins.network_topology_aware import NetworkTopologyAware
from services.scheduler.policy.plugins.nodegroup import NodeGroup
from services.scheduler.policy.plugins.nodeorder import NodeOrder
from services.scheduler.policy.plugins.numa_aware import NumaAware
from services.scheduler.policy.plugins.overcommit import Overcommit
from services.scheduler.policy.plugins.pdb import Pdb
from services.scheduler.policy.plugins.predicates import Predicates
from services.scheduler.policy.plugins.priority import Priority
from services.scheduler.policy.plugins.proportion import Proportion
from services.scheduler.policy.plugins.rescheduling import Rescheduling
from services.scheduler.policy.plugins.reservation import ReservationPlugin
from services.scheduler.policy.plugins.resource_strategy_fit import ResourceStrategyFit
from services.scheduler.policy.plugins.resourcequota import ResourceQuotaPlugin
from services.scheduler.policy.plugins.sla import Sla
from services.scheduler.policy.plugins.task_topology import TaskTopology
from services.scheduler.policy.plugins.tdm import Tdm
from services.scheduler.policy.plugins.usage import Usage
from services.scheduler.policy.states.capacities import Capacities
from services.scheduler.policy.states.claims import Devices
from services.scheduler.policy.states.namespace_limits import Budgets, Quotas
from services.scheduler.policy.states.numa import Numa
from services.scheduler.policy.states.past_usage import PastUsage
from services.scheduler.policy.states.provisioning import ProvisioningRequests
from services.scheduler.policy.states.queue_gates import QueueGates
from services.scheduler.policy.states.usage import UsageTable
from services.scheduler.policy.states.volumes import Volumes
from services.scheduler.policy.vendors.deviceshare import DeviceShare
from services.scheduler.policy.vendors.mindcluster import MindclusterNpus

Action = Callable[[Session, Arguments], None]
"""An action: a session and the action's arguments (K07)."""

ACTIONS: Final[Mapping[str, Action]] = {
    "enqueue": enqueue.execute,
    "allocate": allocate.execute,
    "backfill": backfill.execute,
    "preempt": preempt.execute,
    "reclaim": reclaim.execute,
    "shuffle": shuffle.execute,
    "gangpreempt": gangpreempt.execute,
    "gangreclaim": gangreclaim.execute,
    "defrag": defrag.execute,
}

ARGUMENTS: Final[Mapping[str, Callable[[Arguments], object]]] = {
    "enqueue": enqueue.inqueue_timeout_s,
    "preempt": PreemptArguments.read,
    "reclaim": reclaim.spares,
    "gangpreempt": GangOptions.read,
    "gangreclaim": GangOptions.read,
    "defrag": DefragOptions.read,
}
"""Readers of the arguments of actions, tried when a configuration is loaded."""

Plugins = Mapping[str, Callable[[Arguments], Plugin]]
"""Constructors of plugins by their names in the configuration file."""

STATES: Final[tuple[Callable[[], PolicyState], ...]] = (
    *DeviceShare.states,
    Numa,
    Volumes,
    Capacities,
    Devices,
    Quotas,
    Budgets,
    UsageTable,
    QueueGates,
    PastUsage,
    ProvisioningRequests,
)
"""States of built-in plugins; a recorded cycle holds their fields in this order."""


def states(
    *,
    queue_gates: bool = False,
    csi_storage: bool = True,
    mindcluster: bool = False,
    evaluator: Evaluator | None = None,
) -> tuple[Callable[[], PolicyState], ...]:
    """Return factories of the built-in plugins' states.

    The flags switch queue gates, drivers' capacity and MindCluster on. The evaluator is for
    conditions on devices, which are not evaluated without it.
    """
    chosen: Mapping[Callable[[], PolicyState], Callable[[], PolicyState]] = {
        QueueGates: partial(QueueGates, on=queue_gates),
        Devices: partial(Devices, evaluator),
        Capacities: partial(Capacities, on=csi_storage),
        MindclusterNpus: partial(MindclusterNpus, on=mindcluster),
    }
    return tuple(chosen.get(state, state) for state in STATES)


def foreign_states(plugins: Plugins) -> tuple[Callable[[], PolicyState], ...]:
    """Return factories of the states of external plugins."""
    foreign = [each.states() for each in plugins.values() if isinstance(each, ForeignPlugin)]
    return tuple(chain.from_iterable(foreign))


PLUGINS: Final[Plugins] = {
    "priority": Priority,
    "gang": Gang,
    "conformance": Conformance,
    "overcommit": Overcommit,
    "drf": Drf,
    "predicates": Predicates,
    "extender": Extender,
    "proportion": Proportion,
    "capacity": Capacity,
    "nodeorder": NodeOrder,
    "deviceshare": DeviceShare,
    "numa-aware": NumaAware,
    "nodegroup": NodeGroup,
    "tdm": Tdm,
    "usage": Usage,
    "task-topology": TaskTopology,
    "rescheduling": Rescheduling,
    "resource-strategy-fit": ResourceStrategyFit,
    "sla": Sla,
    "resourcequota": ResourceQuotaPlugin,
    "binpack": Binpack,
    "pdb": Pdb,
    "cdp": Cdp,
    "network-topology-aware": NetworkTopologyAware,
    "reservation": ReservationPlugin,
    "limits": LimitsPlugin,
    "budgets": BudgetsPlugin,
    "fairshare": FairShare,
    "autoscaling": Autoscaling,
    "minruntime": MinRuntime,
}
