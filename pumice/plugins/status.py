"""Statuses of a task (T01)."""

import enum


class TaskStatus(enum.IntEnum):
    """Status of a task; only the scheduler knows the first four after PENDING."""

    PENDING = 0
    ALLOCATED = 1
    PIPELINED = 2
    BINDING = 3
    BOUND = 4
    RUNNING = 5
    RELEASING = 6
    SUCCEEDED = 7
    FAILED = 8
    UNKNOWN = 9

    @property
    def label(self) -> str:
        """Return Volcano's spelling, such as `Pending`."""
        return self.name.capitalize()
