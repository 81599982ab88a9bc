"""Owners that users know: the commands show them, and take them as arguments."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from pumice.queries import workloads
from pumice.queries.workloads import OwnerChains
from shared.api.meta import ObjectMeta
from shared.api.visibility import ObjectRef, PendingJob
from shared.kube.wire import METADATA_ONLY, Request
from tests.support.answers import AnswersTransport, listed
from tests.unit.queries.cluster import EXPLANATION, JOBS, TIMELINE, fixed_answers
from tests.unit.queries.conftest import Run

RAY = "/apis/ray.io/v1"
GROUP = "ray-train-pg"
CLUSTER = ObjectRef(
    api_version="ray.io/v1", kind="RayCluster", namespace="default", name="train-x", uid="c-1"
)
RESOURCES = {
    "kind": "APIResourceList",
    "resources": [
        {"name": "rayclusters", "kind": "RayCluster", "namespaced": True},
        {"name": "rayjobs", "kind": "RayJob", "namespaced": True, "shortNames": ["rj"]},
        {"name": "rayjobs/status", "kind": "RayJob", "namespaced": True},
    ],
}


def reference(kind: str, name: str, uid: str, api_version: str = "ray.io/v1") -> dict[str, Any]:
    """Return an owner reference of a controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
    }


def metadata(name: str, uid: str, *owners: dict[str, Any]) -> dict[str, Any]:
    """Return an object of which only metadata is known."""
    return {"metadata": {"name": name, "uid": uid, "ownerReferences": list(owners)}}


@pytest.fixture
def ray(way: AnswersTransport) -> AnswersTransport:
    """A RayJob, whose RayCluster controls a PodGroup that waits."""
    job = PendingJob(
        metadata=ObjectMeta(name=GROUP, namespace="default"),
        owner=CLUSTER,
        pod_group=GROUP,
        queue="research",
        position=2,
        gate="gang",
    )
    way.answers.jobs = (replace(JOBS[0], pod_group="train-1"), job)
    base = f"{RAY}/namespaces/default"
    way.objects = {
        RAY: RESOURCES,
        f"{base}/rayclusters/train-x": metadata("train-x", "c-1", reference("RayJob", "t", "j-1")),
        f"{base}/rayjobs/t": metadata("t", "j-1"),
    }
    about = ObjectRef(kind="PodGroup", namespace="default", name=GROUP)
    meta = ObjectMeta(name=GROUP, namespace="default")
    way.answers.explanations["default", GROUP] = replace(
        EXPLANATION, metadata=meta, about=about, owner=CLUSTER
    )
    way.answers.timelines["default", GROUP] = replace(TIMELINE, metadata=meta, owner=CLUSTER)
    return way


def test_a_list_names_the_workload_at_the_top_of_the_owners(
    run: Run, ray: AnswersTransport
) -> None:
    code, out, err = run("why")

    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "train", "rayjob/t"]


def test_metadata_alone_is_requested_of_owners(run: Run, ray: AnswersTransport) -> None:
    run("why")

    forms = {r.path: r.accept for r in ray.asked if r.path.startswith(f"{RAY}/namespaces")}
    assert set(forms.values()) == {METADATA_ONLY}
    assert len(forms) == 2


@pytest.mark.parametrize("word", ["rayjob/t", "rayjobs/t", "rj/t", "RayJob/t", "rayjob.ray.io/t"])
@pytest.mark.parametrize("namespace", ["", "default/"])
def test_a_workload_is_an_argument_by_any_word_of_its_kind(
    run: Run, ray: AnswersTransport, word: str, namespace: str
) -> None:
    code, out, err = run("why", f"{namespace}{word}")

    assert (code, err) == (0, "")
    assert out.startswith(f"PodGroup default/{GROUP} of RayJob t: Pending in queue research")


def test_an_owner_in_the_middle_is_an_argument_too(run: Run, ray: AnswersTransport) -> None:
    code, out, _ = run("timeline", "raycluster/train-x")

    assert code == 0
    assert out.startswith(f"default/{GROUP} of RayJob t: Pending")


@pytest.mark.parametrize(
    ("api_version", "kind", "words"),
    [("kubeflow.org/v1", "PyTorchJob", " of PyTorchJob train"), ("batch.volcano.sh/v1", "Job", "")],
)
def test_a_workload_may_have_the_name_of_its_pod_group(
    run: Run, way: AnswersTransport, api_version: str, kind: str, words: str
) -> None:
    owner = replace(CLUSTER, api_version=api_version, kind=kind, name="train")
    way.answers.explanations["default", "train"] = replace(EXPLANATION, owner=owner)
    way.objects = {
        f"/apis/{api_version}": {
            "resources": [{"name": "things", "kind": kind, "namespaced": True}]
        },
        f"/apis/{api_version}/namespaces/default/things/train": metadata("train", "c-1"),
    }

    assert run("why", "train")[1].startswith(f"Job default/train{words}: Pending")


def test_when_names_the_workload(run: Run, ray: AnswersTransport) -> None:
    _, out, _ = run("when", "rayjob/t")

    assert out.startswith("default/rayjob/t: not known")


def test_top_names_the_workload(run: Run, ray: AnswersTransport) -> None:
    _, out, _ = run("top", "-o", "wide")

    assert "default/rayjob/t" in out


def test_json_has_the_workload_as_owner(run: Run, ray: AnswersTransport) -> None:
    _, out, _ = run("why", "-o", "json")

    owners = [(item["owner"]["kind"], item["owner"]["name"]) for item in json.loads(out)["items"]]
    assert owners == [("Job", "train"), ("RayJob", "t")]


def test_of_several_jobs_of_a_workload_the_first_is_shown_and_the_others_are_named(
    run: Run, ray: AnswersTransport
) -> None:
    more = replace(ray.answers.jobs[1], metadata=ObjectMeta(name="second", namespace="default"))
    ray.answers.jobs = (*ray.answers.jobs, more)

    code, out, err = run("why", "rayjob/t")

    assert code == 0
    assert f"PodGroup default/{GROUP}" in out
    assert err == f"note: rayjob/t has 2 jobs: {GROUP}, second\n"


def test_a_name_of_no_workload_is_refused_as_before(run: Run, ray: AnswersTransport) -> None:
    code, _, err = run("why", "rayjob/none")

    assert code == 1
    assert err.startswith("error: nothing is known of rayjob/none")


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("raycluster/trn-x", "raycluster/train-x"),
        ("default/raycluster/train", "raycluster/train-x"),
        ("rayclusters/trainx", "rayclusters/train-x"),
        ("raycluser/train-x", "raycluster/train-x"),
    ],
)
def test_a_workload_of_a_similar_kind_or_name_is_suggested(
    run: Run, ray: AnswersTransport, word: str, near: str
) -> None:
    code, _, err = run("why", word)

    assert code == 1
    assert err == f"error: nothing is known of {word}; did you mean {near}?\n"


def test_no_workload_is_suggested_for_a_job_whose_phase_is_known(
    run: Run, ray: AnswersTransport
) -> None:
    explained = ray.answers.explanations
    passed = replace(explained["default", GROUP], phase="Running", gates=())
    explained["default", "train-x"] = passed

    assert "raycluster" not in run("why", "default/train-x")[2]


def test_an_owner_that_the_user_may_not_get_is_not_named(run: Run, ray: AnswersTransport) -> None:
    del ray.objects[f"{RAY}/namespaces/default/rayjobs/t"]
    assert "raycluster/train-x" in run("why")[1]

    del ray.objects[f"{RAY}/namespaces/default/rayclusters/train-x"]
    out = run("why")[1]
    assert GROUP in out
    assert "train-x" not in out
    assert "train-x" not in run("why", "-o", "json")[1]


def test_an_object_of_another_uid_is_no_owner(run: Run, ray: AnswersTransport) -> None:
    ray.objects[f"{RAY}/namespaces/default/rayjobs/t"] = metadata("t", "another")

    assert "raycluster/train-x" in run("why")[1]


@pytest.mark.parametrize(
    "hostile",
    [
        {"api_version": "../../api/v1"},
        {"api_version": "ray.io/v1?x=1"},
        {"kind": "RayCluster/status"},
        {"name": ".."},
        {"name": "../../../secrets/s"},
        {"name": "a?x=b"},
    ],
)
def test_a_hostile_reference_reaches_no_other_path(hostile: dict[str, str]) -> None:
    way = AnswersTransport(fixed_answers())
    way.objects = {RAY: RESOURCES}
    ref = replace(CLUSTER, **hostile)

    found = asyncio.run(OwnerChains(way).shown(shown_of(ref)))

    assert json.loads(found)["items"][0]["owner"]["kind"] == "PodGroup"
    base = f"{RAY}/namespaces/default/rayclusters/"
    for request in way.asked:
        rest = request.path.removeprefix(base) if request.path.startswith(base) else ""
        assert request.path == RAY or (rest and not set(rest) & set("/?#") and rest != "..")


def test_chains_are_bounded_in_depth_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    way = AnswersTransport(fixed_answers())
    loop = metadata("train-x", "c-1", reference("RayCluster", "train-x", "c-1"))
    way.objects = {RAY: RESOURCES, f"{RAY}/namespaces/default/rayclusters/train-x": loop}
    found = json.loads(asyncio.run(OwnerChains(way).shown(shown_of(CLUSTER))))
    assert found["items"][0]["owner"]["name"] == "train-x"
    assert len(way.asked) == 2, "what was read counts for a minute"

    monkeypatch.setattr(workloads, "_LOOKUPS_MAX", 5)
    way.asked.clear()
    many = [replace(CLUSTER, name=f"n{at}", uid=f"u{at}") for at in range(50)]
    asyncio.run(OwnerChains(way).shown(shown_of(*many)))
    assert sum("rayclusters" in request.path for request in way.asked) == 5


def test_an_api_server_that_does_not_answer_delays_a_result_by_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Silent:
        async def exchange(self, request: Request) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError(request)

    monkeypatch.setattr(workloads, "_LOOKUPS_S", 0.01)

    found = json.loads(asyncio.run(OwnerChains(Silent()).shown(shown_of(CLUSTER))))

    assert found["items"][0]["owner"] == {
        "kind": "PodGroup",
        "namespace": "default",
        "name": GROUP,
    }


def shown_of(*owners: ObjectRef) -> bytes:
    """Return a list of jobs with these owners, as the service sends it."""
    jobs = [
        PendingJob(
            metadata=ObjectMeta(name=GROUP, namespace="default"),
            owner=owner,
            pod_group=GROUP,
            queue="q",
        )
        for owner in owners
    ]
    return json.dumps(listed("PendingJob", jobs), separators=(",", ":")).encode()
