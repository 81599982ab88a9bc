"""Commands to jobs that are not there: deleted, or they would wait for ever (J05).

A Command and its job come by different watches, so a job that is not known here may be there all
the same: the API server is asked before a Command is deleted. One that names the uid of an earlier
job of the same name was meant for that one; Volcano gives it to the present job, here it is
dropped. Called by the job worker, on behalf of a key that it owns.
"""

from services.controller.adapters.objects import Objects
from services.controller.adapters.replica import Replica
from shared.api import kinds
from shared.contracts.subjects import split_key
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.logs import Logger


class Strays:
    """Drops the stray Commands to one name; see the module."""

    def __init__(self, objects: Objects, replica: Replica, *, log: Logger) -> None:
        self._objects = objects
        self._replica = replica
        self._log = log

    async def drop(self, key: str) -> None:
        """Delete the Commands to `key` whose job is not there. Raises Retryable, Conflict."""
        strays = self._replica.stray_commands(key)
        if not strays:
            return
        found = await self._objects.read_job(*split_key(key))
        for command in strays:
            assert command.target is not None, "a Command without a target is not held"
            if found is not None and command.target.uid in {"", found.metadata.uid}:
                continue  # meant for a job that STATE does not show yet
            try:
                await self._objects.delete(kinds.COMMAND, command.metadata)
            except Rejected as error:
                raise Retryable(str(error)) from error
            self._log.warning(
                "command_without_job", command=command.metadata.key, action=command.action
            )
