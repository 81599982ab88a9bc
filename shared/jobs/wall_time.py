"""Wall time: how long a job may run, as its annotation says.

The limits of a queue count when a job is created: admission writes them into the job and refuses
larger ones. Where admission was unavailable, the controller writes them before it makes pods. From
then on the job's annotation alone counts (`max_runtime_s`): the controller ends the job by it, and
the scheduler takes it for the latest end. Time counts from the start of the first pod of a run; a
restart of the whole job begins a new run.
"""

from collections.abc import Mapping
from typing import Final

from shared.api import keys
from shared.api.batch import Action
from shared.jobs.expected_durations import parse
from shared.jobs.problems import Problem, Problems, listed
from shared.model import durations

ACTIONS: Final = frozenset(
    {Action.ABORT_JOB, Action.COMPLETE_JOB, Action.RESTART_JOB, Action.TERMINATE_JOB}
)
"""Actions that end a run as a whole, so that a job can have them at its deadline."""

Annotations = Mapping[str, str]


def max_runtime_s(annotations: Annotations) -> float | None:
    """Return the limit of a job, or a queue's maximum, in seconds; None if none is a duration."""
    return parse(annotations.get(keys.MAX_RUNTIME, ""))


def limit_by_queue(job: Annotations, queue: Annotations) -> str:
    """Return the limit that a new job gets from its queue, as the queue states it; "" for none.

    A job without a limit gets the default, else the maximum. One with a larger limit gets the
    maximum.
    """
    own_s, most_s = max_runtime_s(job), max_runtime_s(queue)
    if own_s is None and parse(queue.get(keys.DEFAULT_MAX_RUNTIME, "")) is not None:
        return queue[keys.DEFAULT_MAX_RUNTIME]
    if most_s is not None and (own_s is None or own_s > most_s):
        return queue[keys.MAX_RUNTIME]
    return ""


def job_problems(job: Annotations, queue: Annotations, queue_name: str) -> Problems:
    """Return what is wrong with the annotations of a new job."""
    yield from _no_duration(job, keys.MAX_RUNTIME)
    limit_s, most_s = max_runtime_s(job), max_runtime_s(queue)
    if limit_s is not None and most_s is not None and limit_s > most_s:
        yield Problem(
            _at(keys.MAX_RUNTIME),
            f"{_text(limit_s)} is more than {_text(most_s)}, which queue {queue_name!r} allows",
        )
    action = job.get(keys.DEADLINE_ACTION)
    if action is not None and action not in ACTIONS:
        yield Problem(
            _at(keys.DEADLINE_ACTION), f"invalid action {action!r}: {listed(ACTIONS)} are"
        )


def change_problems(before: Annotations, after: Annotations) -> Problems:
    """Return what is wrong with a change of the limit of a job: it may only become shorter."""
    yield from _no_duration(after, keys.MAX_RUNTIME)
    old_s, new_s = max_runtime_s(before), max_runtime_s(after)
    if old_s is not None and (new_s is None or new_s > old_s):
        yield Problem(
            _at(keys.MAX_RUNTIME), f"it may only become shorter than {_text(old_s)} after creation"
        )


def queue_problems(queue: Annotations) -> Problems:
    """Return what is wrong with the annotations of a queue."""
    for key in (keys.MAX_RUNTIME, keys.DEFAULT_MAX_RUNTIME):
        yield from _no_duration(queue, key)
    default_s = parse(queue.get(keys.DEFAULT_MAX_RUNTIME, ""))
    most_s = max_runtime_s(queue)
    if default_s is not None and most_s is not None and default_s > most_s:
        yield Problem(
            _at(keys.DEFAULT_MAX_RUNTIME),
            f"{_text(default_s)} is more than {_text(most_s)}, the queue's {keys.MAX_RUNTIME}",
        )


def _no_duration(annotations: Annotations, key: str) -> Problems:
    stated = annotations.get(key)
    if stated is not None and parse(stated) is None:
        yield Problem(_at(key), f"{stated[:40]!r} is no duration such as 90, 30m or 1h30m")


def _at(key: str) -> str:
    return f"metadata.annotations[{key}]"


def _text(seconds: float) -> str:
    return durations.text(round(seconds))
