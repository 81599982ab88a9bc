"""Named places where a service can be made to die, for `tests/restart`.

A point sits only at a seam, between two effects that a crash could separate. Off unless the
setting `fault` names it. A reached point leaves a marker first, so that a test can tell a
survived fault from one that was never met.
"""

import os
import pathlib
import signal
from collections.abc import Mapping
from typing import Final

from shared.runtime.errors import Rejected

POINTS: Final[Mapping[str, str]] = {
    "binder.after-claim": "between a device claim's write and what follows it, the bind at last",
    "binder.after-write": "after the API write and before OUTCOME",
    "binder.after-outcome": "after OUTCOME and before the ack of COMMAND",
    "binder.mid-gang": "between two pods of a gang",
    "binder.mid-evict": "between an eviction's condition and its delete",
    "scheduler.before-publish": "after the decision and before the publish",
    "controller.after-kill": "between a job's kill and its status write",
    "controller.after-mark": "between the marks on a job's pods and the phase that they are for",
    "controller.after-status": "between a job's new phase and its effects",
    "controller.after-group": "between a job's PodGroup and the rest of what is made for it",
    "controller.mid-create": "between two pods of a job",
    "controller.after-queue-change": "between two changes of an order to a queue",
    "controller.after-cron-create": "between a CronJob's job and the CronJob's status",
    "controller.after-cron-status": "between a CronJob's status and the end of its old jobs",
    "controller.after-cron-delete": "between the end of a CronJob's job and what follows it",
    "controller.after-flow-status": "between a JobFlow's status and the jobs that it is for",
    "controller.after-flow-create": "between two jobs of a JobFlow",
    "accounting.before-write": "between reading messages and the transaction of their rows",
    "accounting.after-write": "after a transaction and before the next messages are read",
    "cache.before-publish": "after a watch event and before its fact is published",
    "cache.after-publish": "after a fact is published and before the next event is read",
}
"""Every fault point and where it sits; tests go through this catalogue."""


class Faults:
    """The fault points at which one process dies.

    `spec` is empty, or `name`, or `name@N`: die at the N-th passage (from 1). The marker is the
    file `<directory>/<name>` and holds the process id. Raises `Rejected` for an unknown spec.
    """

    def __init__(self, spec: str, directory: str) -> None:
        self._name, _, passage = spec.partition("@")
        if self._name and self._name not in POINTS:
            raise Rejected(
                f"--fault: no fault point {self._name!r}; there are {', '.join(POINTS)}",
                field="fault",
            )
        if passage and not (passage.isdecimal() and int(passage) > 0):
            raise Rejected(f"--fault: {passage!r} is not the number of a passage", field="fault")
        if self._name and not directory:
            raise Rejected("--fault needs --fault-dir for its marker", field="fault-dir")
        self._left = int(passage or 1)
        self._directory = pathlib.Path(directory)

    def point(self, name: str) -> None:
        """Pass the fault point `name`; does not return if the time has come."""
        assert name in POINTS, f"fault point {name!r} is missing in the catalogue"
        if name != self._name:
            return
        self._left -= 1
        if self._left == 0:
            self._mark()
            os.kill(os.getpid(), signal.SIGKILL)

    def _mark(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / self._name).open("w", encoding="utf-8") as marker:
            marker.write(f"{os.getpid()}\n")
            marker.flush()
            os.fsync(marker.fileno())
