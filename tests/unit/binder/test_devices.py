"""Steps of a device claim before its pod is bound, and after a bind that came to nothing."""

from typing import Any

import msgspec
import pytest

from services.binder.intents.devices import (
    FINALIZER,
    ClaimCreate,
    ClaimDelete,
    ClaimReady,
    ClaimWrite,
    Protect,
    Unprepared,
    Unusable,
    prepared_step,
    release_step,
    reserve_step,
    status_of_pod,
)
from shared.api.resource import ResourceClaim
from shared.contracts.messages import Bind, DeviceUse

ALLOCATION = {
    "devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "0"}]},
    "nodeSelector": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
        ]
    },
}
OTHER = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "1"}]}}
MINE = {"resource": "pods", "name": "p", "uid": "pod"}
THEIRS = {"resource": "pods", "name": "q", "uid": "other"}


GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "ug"}


def use(*, allocated: bool = False, **more: str) -> DeviceUse:
    said = msgspec.Raw(msgspec.json.encode(ALLOCATION))
    return DeviceUse(claim="ns/c", uid="u", allocation=said, allocated=allocated, **more)


OF_GROUP = use(group="g", group_uid="ug")


NOW = 1_767_225_600.0
WRITTEN = {**ALLOCATION, "allocationTimestamp": "2026-01-01T00:00:00Z"}
ITEM = Bind(pod="ns/p", uid="pod", node="n", devices=(use(),))


def claim(
    *users: dict[str, str],
    allocation: Any = None,
    uid: str = "u",
    finalizers: tuple[str, ...] = (FINALIZER,),
    devices: Any = (),
    **meta: Any,
) -> ResourceClaim:
    return msgspec.convert(
        {
            "metadata": {"name": "c", "uid": uid, "finalizers": finalizers, **meta},
            "status": {"allocation": allocation, "reservedFor": list(users), "devices": devices},
        },
        ResourceClaim,
    )


@pytest.mark.parametrize(
    ("given", "seen", "step"),
    [
        pytest.param(
            use(),
            claim(finalizers=("own",)),
            Protect({"metadata": {"finalizers": ["own", FINALIZER]}}),
            id="unprotected",
        ),
        pytest.param(
            use(),
            claim(),
            ClaimWrite({"status": {"allocation": WRITTEN, "reservedFor": [MINE]}}),
            id="fresh",
        ),
        pytest.param(
            use(),
            claim(THEIRS, allocation=ALLOCATION),
            ClaimWrite({"status": {"reservedFor": [THEIRS, MINE]}}),
            id="written-for-another-pod-of-the-gang",
        ),
        pytest.param(
            use(allocated=True),
            claim(allocation=ALLOCATION),
            ClaimWrite({"status": {"reservedFor": [MINE]}}),
            id="allocated-before",
        ),
        pytest.param(use(), claim(MINE, allocation=ALLOCATION), ClaimReady(), id="done"),
        pytest.param(
            OF_GROUP,
            claim(),
            ClaimWrite({"status": {"allocation": WRITTEN, "reservedFor": [GROUP]}}),
            id="of-a-group",
        ),
        pytest.param(OF_GROUP, claim(GROUP, allocation=ALLOCATION), ClaimReady(), id="group-done"),
    ],
)
def test_a_claim_is_taken_to_where_its_pod_can_be_bound(given, seen, step):
    assert reserve_step(ITEM, given, seen, now=NOW) == step


@pytest.mark.parametrize(
    ("given", "seen", "message"),
    [
        pytest.param(use(), claim(uid="v"), "another one now", id="another"),
        pytest.param(use(), claim(deletionTimestamp="2026-01-01T00:00:00Z"), "deleted", id="going"),
        pytest.param(use(), claim(allocation=OTHER), "other devices", id="others"),
        pytest.param(use(allocated=True), claim(), "lost its devices", id="lost"),
        pytest.param(
            use(),
            claim(
                *({"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(256)),
                allocation=ALLOCATION,
            ),
            "256 pods",
            id="full",
        ),
    ],
)
def test_a_claim_that_is_not_as_it_was_decided_on_fails_the_bind(given, seen, message):
    step = reserve_step(ITEM, given, seen, now=NOW)
    assert isinstance(step, Unusable)
    assert message in step.message


@pytest.mark.parametrize(
    ("given", "seen", "step"),
    [
        pytest.param(
            use(),
            claim(MINE, allocation=ALLOCATION),
            ClaimWrite({"status": {"reservedFor": None, "allocation": None}}),
            id="of-this-bind-alone",
        ),
        pytest.param(
            use(),
            claim(MINE, THEIRS, allocation=ALLOCATION),
            ClaimWrite({"status": {"reservedFor": [THEIRS]}}),
            id="another-pod-uses-it",
        ),
        pytest.param(
            use(allocated=True),
            claim(MINE, allocation=ALLOCATION),
            ClaimWrite({"status": {"reservedFor": None}}),
            id="allocated-before",
        ),
        pytest.param(
            use(),
            claim(allocation=ALLOCATION),
            ClaimWrite({"status": {"allocation": None}}),
            id="taken-back-by-half",
        ),
        pytest.param(use(), claim(MINE, uid="v", allocation=OTHER), ClaimReady(), id="another"),
        pytest.param(use(), claim(THEIRS, allocation=OTHER), ClaimReady(), id="others"),
        pytest.param(use(), claim(), ClaimReady(), id="nothing-written"),
        pytest.param(OF_GROUP, claim(GROUP, allocation=ALLOCATION), ClaimReady(), id="of-a-group"),
    ],
)
def test_a_bind_that_came_to_nothing_takes_back_what_it_wrote(given, seen, step):
    assert release_step(ITEM, given, seen, now=NOW, timeout_s=60.0) == step


DEVICE = {"request": "r", "driver": "d", "pool": "p", "device": "0"}
CONDITIONS = {"bindingConditions": ["ready", "linked"], "bindingFailureConditions": ["broken"]}
AWAITED = {
    "devices": {"results": [{**DEVICE, **CONDITIONS}]},
    "allocationTimestamp": "2026-01-01T00:00:00Z",
}


def said(**conditions: str) -> list[dict[str, Any]]:
    """Return what a driver says of the device: condition → status."""
    listed = [{"type": name, "status": status} for name, status in conditions.items()]
    return [{"driver": "d", "pool": "p", "device": "0", "conditions": listed}]


@pytest.mark.parametrize(
    ("seen", "later_s", "step"),
    [
        pytest.param(claim(allocation=ALLOCATION), 0, ClaimReady, id="no-conditions"),
        pytest.param(claim(allocation=AWAITED), 59, Unprepared, id="nothing-said"),
        pytest.param(claim(allocation=AWAITED), 60, Unusable, id="too-late"),
        pytest.param(
            claim(allocation=AWAITED, devices=said(ready="True")), 0, Unprepared, id="half"
        ),
        pytest.param(
            claim(allocation=AWAITED, devices=said(ready="True", linked="False")),
            0,
            Unprepared,
            id="one-is-false",
        ),
        pytest.param(
            claim(allocation=AWAITED, devices=said(ready="True", linked="True")),
            600,
            ClaimReady,
            id="all",
        ),
        pytest.param(
            claim(allocation=AWAITED, devices=said(ready="True", linked="True", broken="True")),
            0,
            Unusable,
            id="broken",
        ),
        pytest.param(claim(), 0, Unusable, id="lost"),
        pytest.param(claim(uid="v", allocation=ALLOCATION), 0, Unusable, id="another"),
    ],
)
def test_a_bind_waits_for_all_conditions_and_fails_with_one_or_with_time(seen, later_s, step):
    found = prepared_step(ITEM, use(allocated=True), seen, now=NOW + later_s, timeout_s=60.0)
    assert type(found) is step


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        pytest.param(
            claim(MINE, allocation=AWAITED, devices=said(broken="True")),
            {"reservedFor": None, "allocation": None, "devices": None},
            id="of-no-other-pod",
        ),
        pytest.param(
            claim(MINE, THEIRS, allocation=AWAITED, devices=said(broken="True")),
            {"reservedFor": [THEIRS]},
            id="another-pod-uses-it",
        ),
        pytest.param(
            claim(MINE, allocation=AWAITED, devices=said(ready="True")),
            {"reservedFor": None},
            id="still-being-prepared",
        ),
    ],
)
def test_what_cannot_be_prepared_goes_though_an_earlier_bind_has_allocated_it(seen, wanted):
    step = release_step(ITEM, use(allocated=True), seen, now=NOW, timeout_s=60.0)
    assert step == ClaimWrite({"status": wanted})


# --- claims for extended resources ---------------------------------------------------------------

MADE = msgspec.structs.replace(
    use(),
    uid="",
    requests=(("container-0-request-0", "gpu", 1),),
    mappings=(("main", "example.com/gpu", "container-0-request-0"),),
)
OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod"}]}
ASKED = {"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu", "count": 1}}
SPEC = {"devices": {"requests": [ASKED]}}


def made(spec: Any = SPEC, **of: Any) -> ResourceClaim:
    """Return a claim that was made for the pod."""
    shown = msgspec.to_builtins(claim(**of, **OWNED))
    return msgspec.convert({**shown, "spec": spec}, ResourceClaim)


def test_a_claim_for_extended_resources_is_created_as_kube_scheduler_does():
    step = reserve_step(ITEM, MADE, None, now=NOW)
    assert isinstance(step, ClaimCreate)
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert step.body["spec"]["devices"]["requests"] == [
        {"name": "container-0-request-0", "exactly": exactly}
    ]
    assert step.body["metadata"] == {
        "name": "c",
        "namespace": "ns",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{**OWNED["ownerReferences"][0], "controller": True}],
        "finalizers": [FINALIZER],
    }
    assert status_of_pod(MADE)["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": "c",
        "requestMappings": [
            {
                "containerName": "main",
                "resourceName": "example.com/gpu",
                "requestName": "container-0-request-0",
            }
        ],
    }


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        pytest.param(
            made(),
            ClaimWrite({"status": {"allocation": WRITTEN, "reservedFor": [MINE]}}),
            id="created",
        ),
        pytest.param(
            made(allocation=OTHER),
            Protect({"metadata": {"finalizers": []}}),
            id="left-with-other-devices",
        ),
        pytest.param(made(allocation=OTHER, finalizers=()), ClaimDelete(), id="unprotected"),
        pytest.param(made(spec={}, finalizers=()), ClaimDelete(), id="other-requests"),
    ],
)
def test_a_claim_that_a_failed_bind_has_left_is_made_anew(seen, step):
    assert reserve_step(ITEM, MADE, seen, now=NOW) == step


def test_a_claim_of_that_name_that_is_not_of_the_pod_fails_the_bind():
    assert isinstance(reserve_step(ITEM, MADE, claim(), now=NOW), Unusable)
    assert release_step(ITEM, MADE, claim(), now=NOW, timeout_s=1.0) == ClaimReady()


def test_a_failed_bind_deletes_the_claim_for_extended_resources():
    given = made(allocation=ALLOCATION)
    expected = Protect({"metadata": {"finalizers": []}})
    assert release_step(ITEM, MADE, given, now=NOW, timeout_s=1.0) == expected
    bare = made(allocation=ALLOCATION, finalizers=())
    assert release_step(ITEM, MADE, bare, now=NOW, timeout_s=1.0) == ClaimDelete()


def test_a_claim_that_others_keep_from_going_is_left_to_them():
    """Its owner may add finalizers; a second DELETE would change nothing, and so on for ever."""
    kept = made(finalizers=("example.com/kept",), deletionTimestamp="2026-01-01T00:00:00Z")
    assert release_step(ITEM, MADE, kept, now=NOW, timeout_s=1.0) == ClaimReady()
