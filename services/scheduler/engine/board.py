"""What a session's changes act on: nodes, hooks, and what is remembered of failures.

A part of the session, so that changes need not know all of it.
"""

from collections.abc import Callable
from typing import NamedTuple

from services.scheduler.engine.failures import JobFailures
from services.scheduler.engine.hooks import Combined
from services.scheduler.engine.ledger import Ledger
from services.scheduler.engine.nodes import Nodes
from services.scheduler.engine.records import Job


class Board(NamedTuple):
    """Where tasks are moved."""

    nodes: Nodes
    hooks: Combined
    failures: Callable[[Job], JobFailures]

    @property
    def ledger(self) -> Ledger:
        """The amounts on nodes."""
        return self.nodes.ledger
