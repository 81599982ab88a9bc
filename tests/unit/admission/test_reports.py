"""Jobs as users reported them to Volcano: refused at once with the reason, or filled in rightly."""

import pytest

from tests.unit.admission.asking import ask, paths, sparse_job, task


def test_hosts_that_fit_no_variable_are_fine_in_a_file() -> None:
    """Reported as volcano#5471: no container started, and nothing said why."""
    workers = task("a-worker-task", 2000)
    for words in ([], ["--inject-hosts-env=false"]):
        stated = sparse_job(workers, name="j" * 40, plugins={"svc": words})
        assert ask("/jobs/validate", stated).allowed is bool(words)
    assert ask("/jobs/validate", sparse_job(task("w", 1100), plugins={"svc": []})).allowed


def test_a_job_may_not_grow_beyond_what_its_plugin_can_list() -> None:
    words = {"plugins": {"svc": []}, "minAvailable": 1}
    old = sparse_job(task("a-worker-task", 100), name="j" * 40, **words)
    new = sparse_job(task("a-worker-task", 2000), name="j" * 40, **words)
    verdict = ask("/jobs/validate", new, old=old, operation="UPDATE")
    assert paths(verdict) == ["spec.plugins.svc"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("2026-retrain", []),
        ("model.v2.train", ["metadata.name"]),
        ("a" * 62, ["spec.tasks[0].name"]),
    ],
)
def test_a_name_that_makes_no_host_name_is_refused_with_the_plugin_that_needs_one(
    name: str, told: list[str]
) -> None:
    """Reported as volcano#4691: the job waited for ever, only a log said why."""
    assert paths(ask("/jobs/validate", sparse_job(name=name, plugins={"svc": []}))) == told


def test_the_minimum_of_partitions_is_that_of_the_job() -> None:
    """Reported as volcano#4867: all partitions were waited for."""
    policy = {"totalPartitions": 4, "partitionSize": 3, "minPartitions": 2}
    verdict = ask("/jobs/mutate", sparse_job(task("w", 12, partitionPolicy=policy)))
    (least,) = (o["value"] for o in verdict.patch if o["path"] == "/spec/minAvailable")
    assert least == 6
