"""The jobs of a flow: what one is called, and what it is made of (F01)."""

from typing import Final

from shared.api import keys, kinds
from shared.api.batch import Job, JobPhase
from shared.api.flow import JobFlow, JobTemplate
from shared.api.meta import ObjectMeta, OwnerReference

STOPPED: Final = frozenset({JobPhase.FAILED, JobPhase.TERMINATED})
ENDED: Final = STOPPED | {JobPhase.COMPLETED}
"""Phases that a job does not leave."""


def name_of(flow: JobFlow, entry: str) -> str:
    """Return the name of the job of one entry of a flow."""
    return f"{flow.metadata.name}-{entry}"


def job_of(flow: JobFlow, template: JobTemplate) -> Job:
    """Return the job that a flow makes from a template."""
    marks = {
        keys.CREATED_BY_TEMPLATE: f"{template.metadata.namespace}.{template.metadata.name}",
        keys.CREATED_BY_FLOW: f"{flow.metadata.namespace}.{flow.metadata.name}",
    }
    owner = OwnerReference(
        api_version=kinds.JOBFLOW.api_version,
        kind=kinds.JOBFLOW.kind,
        name=flow.metadata.name,
        uid=flow.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return Job(
        metadata=ObjectMeta(
            name=name_of(flow, template.metadata.name),
            namespace=flow.metadata.namespace,
            labels=marks,
            annotations=marks,
            owner_references=(owner,),
        ),
        spec=template.spec,
    )
