"""What the controller holds besides jobs, and whose jobs are whose."""

from typing import Any

import msgspec
import pytest

from services.controller.adapters.holdings import Holdings, Place
from services.controller.adapters.replica import Replica
from shared.api import kinds
from shared.api.kinds import Kind
from shared.contracts.messages import Fact, Op

FROM = "volcano.sh/createdByJobTemplate"


def owner(
    kind: str, name: str, uid: str, group: str = "batch.volcano.sh/v1alpha1"
) -> dict[str, Any]:
    return {"apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": True}


def meta(name: str, rv: int = 1, uid: str = "", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "ns",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(rv),
        **more,
    }


def decoded(kind: Kind, **metadata: Any) -> Any:
    return kinds.decode(kind, msgspec.json.encode({"metadata": metadata}))


def fact(kind: Kind, **metadata: Any) -> Fact:
    return Fact(
        kind=kind.token,
        key=f"{metadata['namespace']}/{metadata['name']}",
        uid=metadata["uid"],
        rv=metadata["resourceVersion"],
        op=Op.PUT,
        body=msgspec.Raw(msgspec.json.encode({"metadata": metadata})),
    )


def test_a_job_belongs_to_its_controller_and_to_its_template() -> None:
    held = Holdings()
    flow = owner("JobFlow", "f", "flow", "flow.volcano.sh/v1alpha1")
    job = decoded(kinds.JOB, **meta("j", ownerReferences=[flow], labels={FROM: "ns.t"}))
    assert list(held.put_job(job)) == [
        Place("jobflows", "ns/f"),
        Place("jobtemplates", "ns/t"),
    ]
    assert held.jobs_of("flow") == held.jobs_from("ns/t") == [job]
    assert list(held.drop_job("ns/j", "uid-j")) == [
        Place("jobflows", "ns/f"),
        Place("jobtemplates", "ns/t"),
    ]
    assert held.jobs_of("flow") == held.jobs_from("ns/t") == []


@pytest.mark.parametrize(
    "metadata",
    [
        meta("j"),
        meta("j", ownerReferences=[{**owner("CronJob", "c", "x"), "controller": False}]),
        meta("j", ownerReferences=[owner("CronJob", "c", "x", "batch/v1")]),
        meta("j", labels={FROM: "elsewhere.t"}),
        meta("j", labels={FROM: "t"}),
    ],
)
def test_a_job_that_belongs_to_nobody_of_ours_is_not_held(metadata: dict[str, Any]) -> None:
    held = Holdings()
    assert list(held.put_job(decoded(kinds.JOB, **metadata))) == []
    assert held.jobs_of("x") == []


def test_a_job_whose_label_changed_leaves_its_template() -> None:
    held = Holdings()
    list(held.put_job(decoded(kinds.JOB, **meta("j", labels={FROM: "ns.t"}))))
    list(held.put_job(decoded(kinds.JOB, **meta("j", 2))))
    assert held.jobs_from("ns/t") == []


def test_a_namesake_takes_the_place_of_a_job() -> None:
    held = Holdings()
    for uid in ("old", "new"):
        controller = owner("CronJob", "c", "cron")
        list(held.put_job(decoded(kinds.JOB, **meta("j", uid=uid, ownerReferences=[controller]))))
    assert [job.metadata.uid for job in held.jobs_of("cron")] == ["new"]
    assert list(held.drop_job("ns/j", "old")) == []


def test_only_the_labels_of_a_node_are_news() -> None:
    held = Holdings()
    assert list(held.put("nodes", decoded(kinds.NODE, **meta("n", labels={"a": "b"}))))
    assert not list(held.put("nodes", decoded(kinds.NODE, **meta("n", 2, labels={"a": "b"}))))
    assert list(held.put("nodes", decoded(kinds.NODE, **meta("n", 3, labels={"a": "c"}))))


def test_the_replica_tells_whose_jobs_changed_and_forgets_what_it_deleted() -> None:
    replica = Replica(scheduler_names=["volcano"])
    replica.fold([fact(kinds.CRONJOB, **meta("c", 1, "cron"))])
    made = meta("j", 2, ownerReferences=[owner("CronJob", "c", "cron")])
    touched = replica.fold([fact(kinds.JOB, **made)])
    assert list(touched.others) == [Place("cronjobs", "ns/c")]
    assert [job.metadata.name for job in replica.holdings.jobs_of("cron")] == ["j"]

    assert list(replica.deleted(kinds.JOB, "ns/j", "uid-j").others) == [Place("cronjobs", "ns/c")]
    late = {**made, "resourceVersion": "3"}
    assert not replica.fold([fact(kinds.JOB, **late)]).others
    assert replica.holdings.jobs_of("cron") == []


def test_what_a_new_stream_does_not_name_is_gone() -> None:
    replica = Replica(scheduler_names=["volcano"])
    replica.fold([fact(kinds.CRONJOB, **meta(name, uid=name)) for name in ("a", "b")])
    replica.lost_touch()
    replica.fold([fact(kinds.CRONJOB, **meta("a", 2, "a"))])
    assert list(replica.complete().others) == [Place("cronjobs", "ns/b")]
    assert list(replica.holdings.crons) == ["ns/a"]
