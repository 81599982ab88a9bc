"""What a service with the scheduler's user of NATS cannot have the binder do."""

from typing import Any

import pytest
from msgspec import Raw, structs

from services.binder.intents.bounds import MEMBERSHIP, breach, breach_of_desired
from services.scheduler.policy.vendors.gpus import GPU_INDEX
from services.scheduler.policy.vendors.vgpu_cards import IDS
from shared.api.autoscaling import CONSUMES
from shared.contracts.messages import (
    Bind,
    BindGang,
    ClaimUse,
    DesiredCondition,
    DesiredNativePodGroup,
    DesiredPod,
    DesiredQueue,
    DeviceUse,
    Evict,
    Victim,
)
from tests.support.world import bind_of

BIND = Bind(pod="ns/p", uid="u", node="n")


def gang(**bind: Any) -> BindGang:
    return bind_of(BIND, structs.replace(BIND, **bind))


@pytest.mark.parametrize(
    "annotation", [GPU_INDEX, IDS, CONSUMES, "example.com/kubernetes.io", "of-a-plugin"]
)
def test_a_binding_gives_annotations_of_plugins(annotation) -> None:
    assert not breach(gang(annotations={annotation: "0"}))


@pytest.mark.parametrize(
    "annotation",
    [
        *sorted(MEMBERSHIP),
        "kubernetes.io/config.source",
        "container.apparmor.security.beta.kubernetes.io/main",
        "scheduling.k8s.io/anything",
    ],
)
def test_a_binding_changes_neither_what_a_pod_belongs_to_nor_what_is_kubernetes(annotation) -> None:
    assert annotation in breach(gang(annotations={annotation: "x"}))


def test_a_gang_and_its_claims_are_in_one_namespace() -> None:
    assert not breach(gang(claims=(ClaimUse(claim="ns/c", uid="c"),)))
    assert "kube-system/p" in breach(gang(pod="kube-system/p"))
    assert "other/c" in breach(gang(claims=(ClaimUse(claim="other/c", uid="c"),)))
    theirs = DeviceUse(claim="other/d", uid="d", allocation=Raw(b"{}"))
    assert "other/d" in breach(gang(devices=(theirs,)))


def test_a_victim_is_in_the_namespace_of_its_gang_and_victims_may_be_of_many() -> None:
    def of(**victim: Any) -> Evict:
        victims = (Victim(pod="a/v", uid="u", job="a/g"), Victim(pod="b/v", uid="w", **victim))
        return Evict(id="i", cycle=1, reason="preempt", victims=victims)

    assert not breach(of())
    assert not breach(of(job="b/g"))
    assert "b/v" in breach(of(job="a/g"))


def test_of_the_conditions_of_pods_scheduling_writes_one_only() -> None:
    def wish(*types: str) -> DesiredPod:
        conditions = tuple(DesiredCondition(type=t, status="False", reason="r") for t in types)
        return DesiredPod(key="ns/p", uid="u", conditions=conditions)

    assert not breach_of_desired(wish("PodScheduled"))
    assert "Ready" in breach_of_desired(wish("PodScheduled", "Ready"))
    assert not breach_of_desired(DesiredQueue(key="q", uid="u", allocated={}))


def test_of_a_native_podgroups_conditions_scheduling_writes_its_own_only() -> None:
    def desired(*types: str) -> DesiredNativePodGroup:
        conditions = tuple(DesiredCondition(type=t, status="False", reason="r") for t in types)
        return DesiredNativePodGroup(key="ns/g", uid="u", conditions=conditions)

    assert not breach_of_desired(desired("PodGroupInitiallyScheduled", "pumice.dev/Phase"))
    assert "DisruptionTarget" in breach_of_desired(desired("DisruptionTarget"))
