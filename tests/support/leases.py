"""A lease of the declared stream, as tests take it."""

from collections.abc import Callable
from typing import Final

from shared.bus.nats import NatsBus
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.election.lease import Lease, LeaseTiming
from shared.runtime.clock import Clock

SUBJECTS: Final = Subjects(cluster="local")
PATIENT: Final = LeaseTiming(takeover_s=600.0)
"""For a candidate that must not have waited until the lease expired."""


def lease_of(
    bus: NatsBus,
    holder: str,
    *,
    clock: Clock,
    name: str = "scheduler",
    timing: LeaseTiming | None = None,
    presence: Callable[[str], str] | None = None,
) -> Lease:
    """Return the lease `name` of the cluster `local`, as the process life `holder` sees it."""
    return Lease(
        bus,
        stream=streams("local").lease.name,
        subject=SUBJECTS.lease(name),
        holder=holder,
        clock=clock,
        timing=timing,
        presence=presence,
    )
