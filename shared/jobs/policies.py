"""Which lifecycle policies a user may write (W21)."""

from typing import Final

from shared.api.batch import Action, Job, JobEvent, LifecyclePolicy
from shared.jobs.problems import Problem, Problems, listed
from shared.model import durations

USER_EVENTS: Final = frozenset(
    {
        JobEvent.ANY,
        JobEvent.POD_FAILED,
        JobEvent.POD_EVICTED,
        JobEvent.POD_PENDING,
        JobEvent.UNKNOWN,
        JobEvent.TASK_COMPLETED,
        JobEvent.TASK_FAILED,
        JobEvent.JOB_UPDATED,
    }
)
USER_ACTIONS: Final = frozenset(
    {
        Action.ABORT_JOB,
        Action.RESTART_JOB,
        Action.RESTART_TASK,
        Action.RESTART_POD,
        Action.RESTART_PARTITION,
        Action.TERMINATE_JOB,
        Action.COMPLETE_JOB,
        Action.RESUME_JOB,
    }
)


def policy_problems(job: Job) -> Problems:
    """Return what is wrong with the policies of a job and of its tasks."""
    yield from _of_list("spec.policies", job.spec.policies)
    for index, task in enumerate(job.spec.tasks):
        yield from _of_list(f"spec.tasks[{index}].policies", task.policies)


def _of_list(at: str, policies: tuple[LifecyclePolicy, ...]) -> Problems:
    seen: set[JobEvent | int] = set()
    for index, policy in enumerate(policies):
        where = f"{at}[{index}]"
        events = dict.fromkeys((*policy.events, *([policy.event] if policy.event else ())))
        yield from _alone(where, policy, tuple(events))
        for event in events:
            if event in seen:
                yield Problem(where, f"duplicate event {event}, which an earlier policy answers")
            seen.add(event)
        if policy.exit_code is not None:
            if policy.exit_code in seen:
                yield Problem(
                    where, f"duplicate exitCode {policy.exit_code}, which an earlier policy answers"
                )
            seen.add(policy.exit_code)
    if JobEvent.ANY in seen and any(isinstance(m, str) and m != JobEvent.ANY for m in seen):
        yield Problem(at, "if there's * here, no other policy should be here")


def _alone(where: str, policy: LifecyclePolicy, events: tuple[JobEvent, ...]) -> Problems:
    """Check one policy by itself."""
    if policy.exit_code is None and not events:
        yield Problem(where, "either event and exitCode should be specified: one of them is needed")
    if policy.exit_code is not None and events:
        yield Problem(
            where, "must not specify event and exitCode simultaneously: they exclude each other"
        )
    if policy.exit_code == 0:
        yield Problem(f"{where}.exitCode", "0 is not a valid error code: it is success")
    for event in events:
        if event not in USER_EVENTS:
            yield Problem(
                f"{where}.event", f"invalid policy event {str(event)!r}: {listed(USER_EVENTS)} are"
            )
    if policy.action not in USER_ACTIONS:
        yield Problem(
            f"{where}.action",
            f"invalid policy action {str(policy.action)!r}: {listed(USER_ACTIONS)} are",
        )
    try:
        durations.seconds(policy.timeout)
    except ValueError as error:
        yield Problem(f"{where}.timeout", str(error))
