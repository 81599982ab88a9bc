"""Names and amounts of the engine as the types of `visibility.pumice.dev` have them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from pumice.plugins import FloatArray, IntArray
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.plan import Shortage
from services.scheduler.engine.resources.dimensions import quantity, readable
from shared.api.base import NAME_MAX
from shared.api.kinds import JOB, PODGROUP
from shared.api.meta import ObjectMeta
from shared.api.visibility import ObjectRef, ResourceShortage

_SHORT_MAX: Final = 20
"""Most resources that a result names: a pod may request thousands."""

Amounts = IntArray | FloatArray


def owner_of(job: Job) -> ObjectRef:
    """Return the Job that made a PodGroup, else the PodGroup itself."""
    return ref_of(job.key, job.owner_job)


def ref_of(group: str, owner_job: str) -> ObjectRef:
    """Return the object that users know a gang by, from the keys of its PodGroup and its Job."""
    namespace, _, name = (owner_job or group).partition("/")
    kind = JOB.kind if owner_job else PODGROUP.kind
    return ObjectRef(kind=kind, namespace=namespace, name=name)


def controller_of(job: Job) -> ObjectRef:
    """Return what controls a PodGroup, with what a client needs to look it up; else the PodGroup.

    The API server stores a reference of any length; one that no object can have is left out.
    """
    ref = job.controller
    if ref is None or max(map(len, (ref.api_version, ref.kind, ref.name, ref.uid))) > NAME_MAX:
        return owner_of(job)
    return ObjectRef(
        api_version=ref.api_version,
        kind=ref.kind,
        namespace=job.namespace,
        name=ref.name,
        uid=ref.uid,
    )


def meta_of(job: Job) -> ObjectMeta:
    """Return the metadata of a result for a job: the name is that of its owner."""
    owner = owner_of(job)
    return ObjectMeta(
        name=owner.name, namespace=owner.namespace, creation_timestamp=job.created or None
    )


def shortage(short: Shortage) -> ResourceShortage:
    """Return a shortage with quantities."""
    return ResourceShortage(
        resource=short.resource,
        requested=quantity(short.resource, short.requested),
        free=quantity(short.resource, short.largest_free),
    )


def shortages(short: Iterable[Shortage]) -> tuple[ResourceShortage, ...]:
    """Return shortages with quantities, up to the limit of a result."""
    return tuple(shortage(each) for each in list(short)[:_SHORT_MAX])


def amount(name: str, value: Any) -> str:  # noqa: ANN401 - an element of an array
    """Return an amount as a quantity; empty for one that is not bounded."""
    return quantity(name, int(value)) if np.isfinite(value) else ""


def listed(amounts: Mapping[str, int]) -> str:
    """Return amounts by resource for a sentence: `4 cpu and 8Gi memory`."""
    texts = [f"{readable(name, value)} {name}" for name, value in sorted(amounts.items())]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
