"""How long a job may run: admission fills in the queue's default and refuses what is too long."""

import pytest

from services.admission.rules.catalogue import HOOKS, conditions
from services.admission.rules.review import Terms
from shared.api import keys
from shared.jobs.wall_time import limit_by_queue
from tests.unit.admission.asking import Json, ask, new_queue, paths, queue_named, sparse_job

AT = "metadata.annotations[pumice.dev/max-runtime]"
BOUNDED = queue_named("default", annotations={keys.MAX_RUNTIME: "2h"})


def job(limit: str = "", **annotations: str) -> Json:
    stated = sparse_job()
    notes = {**({keys.MAX_RUNTIME: limit} if limit else {}), **annotations}
    if notes:
        stated["metadata"]["annotations"] = notes
    return stated


def filled(stated: Json, queue: Json) -> object:
    patch = ask("/jobs/mutate", stated, queues=[queue]).patch
    return [o["value"] for o in patch if o["path"].startswith("/metadata/annotations")]


def test_a_job_gets_the_default_of_its_queue_else_its_maximum() -> None:
    both = {keys.MAX_RUNTIME: "2h", keys.DEFAULT_MAX_RUNTIME: "30m"}
    assert filled(job(), queue_named("default", annotations=both)) == [{keys.MAX_RUNTIME: "30m"}]
    assert filled(job(), BOUNDED) == [{keys.MAX_RUNTIME: "2h"}]
    assert filled(job(other="x"), BOUNDED) == ["2h"]
    assert filled(job("10m"), BOUNDED) == []
    assert filled(job(), queue_named("default")) == []


def test_a_job_that_asks_for_more_than_its_queue_allows_is_refused() -> None:
    verdict = ask("/jobs/validate", job("2h1s"), queues=[BOUNDED])
    assert paths(verdict) == [AT]
    assert "2h0m1s is more than 2h0m0s, which queue 'default' allows" in verdict.message
    assert ask("/jobs/validate", job("7200"), queues=[BOUNDED]).allowed


@pytest.mark.parametrize("limit", ["soon", "-1h", "0", "1d", "inf"])
def test_a_limit_that_is_no_duration_is_refused(limit: str) -> None:
    verdict = ask("/jobs/validate", job(limit))
    assert paths(verdict) == [AT]
    assert "is no duration such as 90, 30m or 1h30m" in verdict.message


def test_an_action_that_does_not_end_the_whole_job_is_refused() -> None:
    assert ask("/jobs/validate", job(**{keys.DEADLINE_ACTION: "AbortJob"})).allowed
    verdict = ask("/jobs/validate", job(**{keys.DEADLINE_ACTION: "RestartPod"}))
    assert paths(verdict) == ["metadata.annotations[pumice.dev/deadline-action]"]


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ("1h", "1h", True),
        ("1h", "30m", True),
        ("", "1h", True),
        ("1h", "2h", False),
        ("1h", "", False),
    ],
)
def test_the_limit_of_a_job_may_only_become_shorter(before: str, after: str, allowed: bool) -> None:
    verdict = ask("/jobs/validate", job(after), operation="UPDATE", old=job(before))
    assert verdict.allowed == allowed
    assert paths(verdict) == ([] if allowed else [AT])


def test_a_change_of_the_limit_is_reviewed() -> None:
    ((_, text),) = conditions(HOOKS["/jobs/validate"], Terms()) or ()
    assert 'oldObject.metadata.annotations["pumice.dev/max-runtime"]' in text


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({keys.MAX_RUNTIME: "1h", keys.DEFAULT_MAX_RUNTIME: "1h"}, ""),
        ({keys.MAX_RUNTIME: "1h", keys.DEFAULT_MAX_RUNTIME: "2h"}, "2h0m0s is more than 1h0m0s"),
        ({keys.MAX_RUNTIME: "soon"}, "no duration"),
        ({keys.DEFAULT_MAX_RUNTIME: "soon"}, "no duration"),
    ],
)
def test_the_limits_of_a_queue_are_durations_that_fit(annotations: Json, said: str) -> None:
    verdict = ask("/queues/validate", new_queue(annotations=annotations))
    assert said in verdict.message
    assert verdict.allowed == (not said)


def test_a_queue_gives_a_limit_to_jobs_without_one_and_with_a_larger_one() -> None:
    queue = {keys.DEFAULT_MAX_RUNTIME: "30m", keys.MAX_RUNTIME: "1h"}
    assert limit_by_queue({keys.MAX_RUNTIME: "5m"}, queue) == ""
    assert limit_by_queue({keys.MAX_RUNTIME: "2h"}, queue) == "1h"
    assert limit_by_queue({keys.MAX_RUNTIME: "x"}, queue) == "30m"
    assert limit_by_queue({}, {keys.MAX_RUNTIME: "1h"}) == "1h"
    assert limit_by_queue({}, {}) == ""
