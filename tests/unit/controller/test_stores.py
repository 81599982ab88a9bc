"""The stores of the controller: what is news, and whose jobs are whose."""

from typing import Any

import msgspec
import pytest

from services.controller.adapters.informers import Informers
from services.controller.adapters.store import IndexedStore, StoreKey, Touched, identity_of
from shared.api import kinds
from shared.api.kinds import Kind
from shared.api.meta import ObjectMeta
from tests.support.world import fact

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


def informers() -> Informers:
    return Informers(scheduler_names=["volcano"])


def put(held: Informers, kind: Kind, **metadata: Any) -> Touched:
    """Let the API server answer with an object."""
    return held.written(kind, msgspec.json.encode({"metadata": metadata}))


def names(found: list[Any]) -> list[str]:
    return [one.metadata.name for one in found]


OWNERS = [StoreKey("jobflows", "ns/f"), StoreKey("jobtemplates", "ns/t")]


def test_a_job_belongs_to_its_controller_and_to_its_template() -> None:
    held = informers()
    flow = owner("JobFlow", "f", "flow", "flow.volcano.sh/v1alpha1")
    touched = put(held, kinds.JOB, **meta("j", ownerReferences=[flow], labels={FROM: "ns.t"}))
    assert list(touched.refs) == [*OWNERS, StoreKey("jobs", "ns/j")]
    owned = ObjectMeta(namespace="ns", uid="flow")
    assert names(held.jobs_of(owned)) == names(held.jobs_from("ns/t")) == ["j"]
    gone = held.deleted(kinds.JOB, "ns/j", "uid-j")
    assert list(gone.refs) == [*OWNERS, StoreKey("jobs", "ns/j")]
    assert held.jobs_of(owned) == held.jobs_from("ns/t") == []


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
def test_a_job_that_belongs_to_nothing_of_ours_touches_itself_alone(
    metadata: dict[str, Any],
) -> None:
    held = informers()
    assert list(put(held, kinds.JOB, **metadata).refs) == [StoreKey("jobs", "ns/j")]
    assert held.jobs_of(ObjectMeta(namespace="ns", uid="x")) == []


def test_a_job_whose_label_changed_leaves_its_template() -> None:
    held = informers()
    put(held, kinds.JOB, **meta("j", labels={FROM: "ns.t"}))
    touched = put(held, kinds.JOB, **meta("j", 2))
    assert held.jobs_from("ns/t") == []
    assert touched.of(kinds.JOBTEMPLATE) == {"ns/t": False}


def test_a_namesake_takes_the_place_of_a_job() -> None:
    held = informers()
    for uid in ("old", "new"):
        controller = owner("CronJob", "c", "cron")
        put(held, kinds.JOB, **meta("j", uid=uid, ownerReferences=[controller]))
    found = held.jobs_of(ObjectMeta(namespace="ns", uid="cron"))
    assert [job.metadata.uid for job in found] == ["new"]
    assert held.jobs["ns/j"].uid == "new"
    assert not held.deleted(kinds.JOB, "ns/j", "old")


def test_only_the_labels_of_a_node_are_news() -> None:
    held = informers()
    for rv, label, news in ((1, "b", True), (2, "b", False), (3, "c", True)):
        node = meta("n", rv, labels={"a": label})
        del node["namespace"]
        assert bool(put(held, kinds.NODE, **node)) is news
    assert held.nodes["n"].metadata.resource_version == "3"


def test_a_change_tells_whose_job_it_is_and_what_was_deleted_stays_so() -> None:
    held = informers()
    held.fold([fact(kinds.CRONJOB.token, {"metadata": meta("c", 1, "cron")})])
    cron = ObjectMeta(namespace="ns", uid="cron")
    made = meta("j", 2, ownerReferences=[owner("CronJob", "c", "cron")])
    touched = held.fold([fact(kinds.JOB.token, {"metadata": made})])
    assert touched.of(kinds.CRONJOB) == {"ns/c": False}
    assert names(held.jobs_of(cron)) == ["j"]

    assert held.deleted(kinds.JOB, "ns/j", "uid-j").of(kinds.CRONJOB) == {"ns/c": False}
    late = {**made, "resourceVersion": "3"}
    assert not held.fold([fact(kinds.JOB.token, {"metadata": late})])
    assert held.jobs_of(cron) == []


def test_what_a_new_stream_does_not_name_is_gone() -> None:
    held = informers()
    held.fold(
        [fact(kinds.CRONJOB.token, {"metadata": meta(name, uid=name)}) for name in ("a", "b")]
    )
    held.begin_resync()
    held.fold([fact(kinds.CRONJOB.token, {"metadata": meta("a", 2, "a")})])
    assert list(held.complete().refs) == [StoreKey("cronjobs", "ns/b")]
    assert list(held.crons) == ["ns/a"]


def test_who_subscribes_is_told_of_each_change_and_of_nothing_else() -> None:
    held, told = informers(), list[Touched]()
    held.on_change(told.append)
    cron = fact(kinds.CRONJOB.token, {"metadata": meta("c")})
    held.fold([cron])
    held.fold([cron])
    assert [list(touched.refs) for touched in told] == [[StoreKey("cronjobs", "ns/c")]]


def test_an_index_follows_its_objects() -> None:
    store: IndexedStore[Any] = IndexedStore(
        {"label": lambda found: tuple(found.metadata.labels.values())}
    )
    one = decoded(kinds.NODE, **meta("a", labels={"x": "1", "y": "2"}))
    assert store.put(identity_of(one), one) is not None
    assert store.put(identity_of(one), one) is None, "the same version again"
    assert store.by_index("label", "1") == store.by_index("label", "2") == [one]
    moved = decoded(kinds.NODE, **meta("a", 2, labels={"x": "2"}))
    change = store.put(identity_of(moved), moved)
    assert change is not None
    assert (change.before, change.after) == (one, moved)
    assert store.by_index("label", "1") == []
    assert store.by_index("label", "2") == [moved]
    assert store.drop("ns/a", "another") is None
    assert store.drop("ns/a", "uid-a") is not None
    assert dict(store.index_values("label")) == {}
