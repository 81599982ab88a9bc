"""Clusters that listen to MindCluster."""

from functools import partial

from services.scheduler.policy import catalog
from services.scheduler.policy.vendors.mindcluster import MindclusterNpus

LISTENING = tuple(
    partial(MindclusterNpus, on=True) if state is MindclusterNpus else state
    for state in catalog.STATES
)
"""The states of policy, with that of MindCluster switched on."""
