"""What it means to choose nodes for somebody: a job, a subgroup of it, and where it may go."""

from typing import NamedTuple

from pumice.plugins import BoolArray
from services.scheduler.engine.records import Job
from services.scheduler.engine.subjobs import SubJob


class Seat(NamedTuple):
    """For whom nodes are chosen, beyond the class of the tasks."""

    job: Job
    sub: SubJob | None = None
    allocated: str = ""
    """HyperNode in which the subgroup is so far."""
    within: BoolArray | None = None
    """Nodes that may be chosen; None = all."""
