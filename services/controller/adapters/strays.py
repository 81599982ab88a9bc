"""Commands to jobs that are not there: deleted, or they would wait for ever (J05).

A Command and its job come by different watches, so a job that is not known here may be there all
the same: the API server is asked before a Command is deleted. One that names the uid of an earlier
job of the same name was meant for that one; Volcano gives it to the present job, here it is
dropped. Called by the job worker, on behalf of a key that it owns.
"""

from collections.abc import Callable

from services.controller.adapters.replica import Replica
from services.controller.adapters.touched import Touched
from services.controller.metrics import ControllerMetrics
from shared.api import kinds
from shared.api.batch import Job
from shared.api.bus import Command
from shared.contracts.subjects import split_key
from shared.kube.client import Kube
from shared.runtime.errors import Gone, Rejected, Retryable
from shared.runtime.logs import Logger


class Strays:
    """Drops the stray Commands to one name; see the module."""

    def __init__(
        self,
        kube: Kube,
        replica: Replica,
        *,
        touch: Callable[[Touched], None],
        metrics: ControllerMetrics,
        log: Logger,
    ) -> None:
        self._kube = kube
        self._replica = replica
        self._touch = touch
        self._metrics = metrics
        self._log = log

    async def drop(self, key: str) -> None:
        """Delete the Commands to `key` whose job is not there. Raises Retryable, Conflict."""
        strays = self._replica.stray_commands(key)
        if not strays:
            return
        present = await self._uid(key)
        for command in strays:
            assert command.target is not None, "a Command without a target is not held"
            if present == "" or command.target.uid not in {"", present}:
                await self._delete(command)

    async def _uid(self, key: str) -> str:
        """Return the uid of the job that is there now, "" for none."""
        namespace, name = split_key(key)
        try:
            answer = await self._kube.get(kinds.JOB, namespace, name)
        except Gone:
            return ""
        job: Job = kinds.decode(kinds.JOB, answer)
        return job.metadata.uid

    async def _delete(self, command: Command) -> None:
        meta = command.metadata
        try:
            await self._kube.delete(kinds.COMMAND, meta.namespace, meta.name, uid=meta.uid)
        except Gone:
            pass
        except Rejected as error:
            raise Retryable(str(error)) from error
        else:
            self._metrics.writes.labels("delete", kinds.COMMAND.token).inc()
        self._touch(self._replica.deleted(kinds.COMMAND, meta.key, meta.uid))
        self._log.warning("command_without_job", command=meta.key, action=command.action)
