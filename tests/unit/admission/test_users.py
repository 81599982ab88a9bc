"""The user of an object: admission writes who created it, whatever its author states."""

import pytest

from services.admission.rules.catalogue import HOOKS, conditions
from services.admission.rules.groups import BadConfiguration, read_configuration
from services.admission.rules.review import AdmissionRequest, ReviewFacts, Terms, Verdict
from services.admission.rules.users import controller_of
from shared.api import keys
from tests.support.world import pod
from tests.unit.admission.asking import Json, sparse_job

OPERATOR = "system:serviceaccount:kubeflow:training-operator"
CONTROLLER = "system:serviceaccount:pumice-system:pumice-controller"
TERMS = Terms(trusted_requesters=(CONTROLLER,), user_sources={OPERATOR: "example.com/submitted-by"})


def review(
    obj: Json,
    *,
    by: str = "ann",
    resource: str = "jobs",
    old: Json | None = None,
    owner: dict[str, str] | None = None,
) -> Verdict:
    request = AdmissionRequest(
        operation="CREATE" if old is None else "UPDATE",
        resource=resource,
        requester=by,
        namespace="ns",
        object=obj,
        old=old or {},
    )
    return HOOKS["/users/mutate"].review(request, ReviewFacts(owner_annotations=owner or {}), TERMS)


def job(**annotations: str) -> Json:
    stated = sparse_job()
    if annotations:
        stated["metadata"]["annotations"] = annotations
    return stated


def of_user(name: str) -> Json:
    return job(**{keys.USER: name})


def test_a_new_job_gets_the_name_of_its_requester() -> None:
    (operation,) = review(job()).patch
    assert operation == {
        "op": "add", "path": "/metadata/annotations", "value": {"pumice.dev/user": "ann"},
    }  # fmt: skip


def test_a_stated_user_is_overwritten() -> None:
    (operation,) = review(of_user("bob")).patch
    assert operation == {
        "op": "add",
        "path": "/metadata/annotations/pumice.dev~1user",
        "value": "ann",
    }
    assert not review(of_user("ann")).patch


def test_an_update_keeps_the_user_that_was_stored() -> None:
    (changed,) = review(of_user("bob"), old=of_user("ann"), by="bob").patch
    (removed,) = review(job(other="x"), old=of_user("ann"), by="bob").patch
    (without,) = review(job(), old=of_user("ann"), by="bob").patch
    assert (changed["value"], removed["value"]) == ("ann", "ann")
    assert without["value"] == {"pumice.dev/user": "ann"}


def test_an_object_without_a_user_gets_none_by_an_update() -> None:
    (operation,) = review(of_user("ann"), old=job()).patch
    assert operation == {"op": "remove", "path": "/metadata/annotations/pumice.dev~1user"}


def test_a_trusted_requester_may_state_another_user() -> None:
    assert not review(of_user("ann"), by=CONTROLLER, resource="podgroups").patch
    (operation,) = review(job(), by=CONTROLLER, resource="podgroups").patch
    assert operation["value"] == {"pumice.dev/user": CONTROLLER}


@pytest.mark.parametrize(
    ("owner", "user"),
    [({"example.com/submitted-by": "ann"}, "ann"), ({}, OPERATOR), ({keys.USER: "x"}, OPERATOR)],
)
def test_an_operators_objects_have_the_user_of_their_owners_annotation(
    owner: dict[str, str], user: str
) -> None:
    (operation,) = review(pod(), by=OPERATOR, resource="pods", owner=owner).patch
    assert operation["value"] == {"pumice.dev/user": user}


def test_an_owners_annotation_counts_for_no_other_requester() -> None:
    owner = {"example.com/submitted-by": "ann"}
    (operation,) = review(pod(), by="bob", resource="pods", owner=owner).patch
    assert operation["value"] == {"pumice.dev/user": "bob"}


def test_pods_of_other_schedulers_get_no_user() -> None:
    assert not review(pod(scheduler="default-scheduler"), resource="pods").patch
    assert review(pod(), resource="pods").patch


def test_the_controlling_owner_is_read_from_the_object() -> None:
    reference = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": True}
    found = controller_of({"metadata": {"ownerReferences": [{"controller": False}, reference]}})
    assert found is not None
    assert found.name == "n"
    assert controller_of({"metadata": {"ownerReferences": 3}}) is None


def test_pods_of_the_controller_cost_no_call() -> None:
    texts = dict(conditions(HOOKS["/users/mutate"], TERMS) or ())
    assert texts["user-is-not-stated"].startswith(
        f'!(request.userInfo.username in ["{CONTROLLER}"])'
    )
    assert texts["ours"].startswith("request.resource.resource != 'pods' || ")
    assert 'oldObject.metadata.annotations["pumice.dev/user"]' in texts["user-is-new"]


def test_the_file_names_sources_of_users() -> None:
    found = read_configuration(f"users: [{{requester: '{OPERATOR}', annotation: a/b}}]")
    assert [(source.requester, source.annotation) for source in found.users] == [(OPERATOR, "a/b")]
    with pytest.raises(BadConfiguration, match=r"users\[0\].annotation: is empty"):
        read_configuration("users: [{requester: a, annotation: ''}]")
