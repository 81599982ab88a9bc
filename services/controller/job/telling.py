"""What is said of a job's life in Kubernetes Events, and why a phase was entered (J34).

An event begins with Volcano's words, which scripts look for (`Start to execute action RestartJob`);
what follows is ours and says from where to where, and why. `occasion` tells apart what is said
twice in the same words and happened twice. Pure; called by `plan`, the shell writes the events.
"""

from services.controller.job import status
from services.controller.job.delays import Delayed
from services.controller.job.effects import Record
from services.controller.job.requests import Request
from shared.api.batch import Action, JobStatus
from shared.api.bus import Command
from shared.model import durations

EXECUTE_ACTION = "ExecuteAction"


def ordered(command: Command) -> Record:
    """Return the event of a Command that is carried out now, or that nobody can carry out."""
    known = command.action in frozenset(Action)
    if known:
        message = f"Start to execute command {command.action} and delete it once it is recorded"
    else:
        message = f"Command {command.metadata.name}: no action {command.action!r}, nothing is done"
    return Record(
        reason=status.COMMAND_ISSUED,
        message=message,
        warning=not known,
        occasion=command.metadata.uid,
    )


def executed(request: Request, action: Action, before: JobStatus, after: JobStatus) -> Record:
    """Return the event of an action: what it was, where it led, and why."""
    was, now = before.state.phase, after.state.phase
    led = f"stays {was}" if was == now else f"{was} → {now}"
    _, why = cause(request)
    return Record(
        reason=EXECUTE_ACTION,
        message=f"Start to execute action {action}: {led}, {why}",
        occasion=_occasion(request, before),
    )


def postponed(delayed: Delayed, before: JobStatus) -> Record:
    """Return the event of an action that waits for its policy's timeout (J12)."""
    _, why = cause(delayed.request)
    after = durations.text(round(delayed.delay_s))
    return Record(
        reason=EXECUTE_ACTION,
        message=f"Execute action {delayed.action} after {after}: {why}",
        occasion=_occasion(delayed.request, before),
    )


def cause(request: Request | None) -> tuple[str, str]:
    """Return reason and message of a phase that a request brought about."""
    if request is None:
        return "", ""
    if request.command_uid:
        return status.COMMAND_ISSUED, f"{request.action} by command {request.command_uid}"
    about = f"pod {request.pod}" if request.pod else "the job"
    code = f", exit code {request.exit_code}" if request.exit_code else ""
    return request.event.value, f"{request.event.value} of {about}{code}"


def _occasion(request: Request, before: JobStatus) -> str:
    """Return what no two occasions share, and a look that is repeated comes to again."""
    return "/".join(map(str, (*request.key, before.version, before.retry_count)))
