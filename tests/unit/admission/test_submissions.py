"""How many jobs of a user or a queue may be there: admission refuses one more."""

from pathlib import Path

import pytest

from services.admission.rules.catalogue import HOOKS
from services.admission.rules.groups import BadConfiguration, SubmitLimit, read_configuration
from services.admission.rules.review import (
    AdmissionRequest,
    ReviewFacts,
    SubmittedJob,
    Terms,
    Verdict,
)
from shared.api import keys
from shared.api.lenient import lenient
from shared.api.scheduling import Queue
from shared.jobs.limits import LimitHolder
from tests.support.clock import VirtualClock
from tests.support.scripted_api import json
from tests.unit.admission.asking import queue_named, sparse_job
from tests.unit.admission.test_lookup import looking

LIMITS = (
    SubmitLimit(queue="by-namespace", namespaces=("*",), submitted=1),
    SubmitLimit(queue="team", users=("*",), submitted=2),
    SubmitLimit(queue="other", submitted=1),
)
QUEUES = [
    queue_named("research", parent="team"),
    queue_named("team", parent="root"),
    queue_named("other", parent="root"),
    queue_named("by-namespace", parent="root"),
]


def submit(
    *there: tuple[str, ...], user: str = "ann", queue: str = "research", uid: str = "new"
) -> Verdict:
    """Return the verdict on a new job of namespace ns beside some of (queue, user, namespace)."""
    job = sparse_job(queue=queue)
    job["metadata"] |= {"uid": uid, "namespace": "ns", "annotations": {keys.USER: user}}
    facts = ReviewFacts(
        queues={queue["metadata"]["name"]: lenient(queue, Queue) for queue in QUEUES},
        submitted={
            f"u{number}": SubmittedJob(queue, LimitHolder(user, namespace))
            for number, (queue, user, namespace) in enumerate((*each, "ns")[:3] for each in there)
        },
    )
    request = AdmissionRequest(operation="CREATE", resource="jobs", namespace="ns", object=job)
    return HOOKS["/jobs/validate"].review(request, facts, Terms(submit_limits=LIMITS))


def test_a_user_may_have_so_many_jobs_in_a_queue_and_below_it() -> None:
    assert submit(("research", "ann"), ("research", "bob"), ("other", "ann")).allowed
    verdict = submit(("research", "ann"), ("team", "ann"))
    assert [problem.path for problem in verdict.problems] == ["spec.queue"]
    assert "user ann holds 2 of 2 submitted jobs in queue team" in verdict.message


def test_a_limit_without_users_holds_for_all_together() -> None:
    assert "all users together hold 1 of 1" in submit(("other", "bob"), queue="other").message


def test_a_limit_may_hold_for_each_namespace_by_itself() -> None:
    queue = "by-namespace"
    assert submit((queue, "ann", "theirs"), queue=queue).allowed
    assert "namespace ns holds 1 of 1" in submit((queue, "bob", "ns"), queue=queue).message


def test_the_new_job_itself_does_not_count() -> None:
    assert submit(("research", "ann"), ("research", "ann"), uid="u0").allowed


def test_the_file_has_limits() -> None:
    (limit,) = read_configuration("limits: [{users: ['*'], submitted: 3}]").limits
    assert (limit.queue, limit.users, limit.submitted) == ("root", ("*",), 3)
    with pytest.raises(BadConfiguration, match="submitted"):
        read_configuration("limits: [{users: ['*']}]")


def listed(uid: str, *, phase: str = "Running") -> dict:
    job = sparse_job(queue="research")
    job["metadata"] |= {"uid": uid, "name": uid, "annotations": {keys.USER: "ann"}}
    return {**job, "status": {"state": {"phase": phase}}}


async def test_jobs_are_counted_from_a_list_and_from_what_was_admitted_since(
    tmp_path: Path,
) -> None:
    clock, mine = VirtualClock(), SubmittedJob("research", LimitHolder("ann", "ns"))
    first = {"metadata": {"resourceVersion": "1"}, "items": [listed("a"), listed("b")]}
    ended = [listed("a"), listed("new", phase="Completed"), listed("x", phase="Aborted")]
    then = {"metadata": {"resourceVersion": "2"}, "items": ended}
    async with looking(tmp_path, json(first), json(then), clock=clock) as (api, lookup):
        assert set(await lookup.submitted()) == {"a", "b"}
        lookup.admitted("new", mine)
        lookup.admitted("never-stored", mine)
        assert set(await lookup.submitted()) == {"a", "b", "new", "never-stored"}
        assert len(api.seen) == 1
        await clock.advance(1.0)
        assert set(await lookup.submitted(fresh=True)) == {"a", "never-stored"}
        await clock.advance(11.0)
        api.then(json(then))
        assert set(await lookup.submitted()) == {"a"}
