"""What a claim needs before its pod is bound (CA11)."""

from typing import Any

import msgspec
import pytest

from services.binder.intents.volumes import (
    SELECTED_NODE,
    AskForVolume,
    Step,
    Unbindable,
    VolumePending,
    VolumeReady,
    claim_step,
    may_reserve,
    reserve,
    select,
)
from shared.api.storage import PersistentVolume, PersistentVolumeClaim
from shared.contracts.messages import ClaimUse

MADE = ClaimUse(claim="ns/c", uid="u")
GIVEN = ClaimUse(claim="ns/c", uid="u", volume="v", volume_uid="vu")
DONE = {"pv.kubernetes.io/bind-completed": "yes"}


def claim(
    *,
    annotations: dict[str, str] | None = None,
    phase: str = "Pending",
    uid: str = "u",
    volume: str = "",
    **meta: Any,
) -> PersistentVolumeClaim:
    head = {"name": "c", "namespace": "ns", "uid": uid, "annotations": annotations or {}, **meta}
    return msgspec.convert(
        {"metadata": head, "spec": {"volumeName": volume}, "status": {"phase": phase}},
        PersistentVolumeClaim,
    )


def volume(*, uid: str = "vu", holder: dict[str, str] | None = None, **meta: Any):
    return msgspec.convert(
        {"metadata": {"name": "v", "uid": uid, **meta}, "spec": {"claimRef": holder}},
        PersistentVolume,
    )


@pytest.mark.parametrize(
    ("use", "seen", "asked", "step"),
    [
        pytest.param(MADE, claim(), False, AskForVolume(), id="fresh"),
        pytest.param(
            MADE, claim(annotations={SELECTED_NODE: "n"}), True, VolumePending(), id="asked"
        ),
        pytest.param(
            MADE, claim(annotations={SELECTED_NODE: "n"}), False, VolumePending(), id="again"
        ),
        pytest.param(MADE, claim(volume="x"), True, VolumePending(), id="being-bound"),
        pytest.param(
            MADE, claim(volume="x", phase="Bound"), True, VolumePending(), id="bound-by-half"
        ),
        pytest.param(
            MADE,
            claim(volume="x", phase="Bound", annotations=DONE),
            True,
            VolumeReady(),
            id="bound",
        ),
        pytest.param(GIVEN, claim(), False, AskForVolume(), id="volume-not-reserved"),
        pytest.param(GIVEN, claim(), True, VolumePending(), id="volume-reserved"),
        pytest.param(
            GIVEN,
            claim(volume="v", phase="Bound", annotations=DONE),
            True,
            VolumeReady(),
            id="given",
        ),
    ],
)
def test_a_claim_that_can_have_its_volume_is_helped_on_its_way(use, seen, asked, step: Step):
    assert claim_step(use, "n", seen, was_requested=asked) == step


@pytest.mark.parametrize(
    ("use", "seen", "asked", "message"),
    [
        pytest.param(MADE, claim(uid="other"), False, "another one now", id="another"),
        pytest.param(
            MADE,
            claim(deletionTimestamp="2026-01-01T00:00:00Z"),
            False,
            "being deleted",
            id="going",
        ),
        pytest.param(MADE, claim(phase="Lost", volume="x"), True, "lost its volume", id="lost"),
        pytest.param(
            MADE, claim(annotations={SELECTED_NODE: "m"}), False, "made for node m", id="elsewhere"
        ),
        pytest.param(MADE, claim(), True, "could be made for node n", id="provisioner-gave-up"),
        pytest.param(GIVEN, claim(volume="w"), True, "has got volume w", id="got-another"),
    ],
)
def test_a_claim_that_cannot_have_its_volume_here_fails_the_bind(use, seen, asked, message: str):
    step = claim_step(use, "n", seen, was_requested=asked)
    assert isinstance(step, Unbindable)
    assert message in step.message


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        pytest.param(volume(), AskForVolume, id="free"),
        pytest.param(
            volume(holder={"namespace": "ns", "name": "c"}), AskForVolume, id="meant-for-it"
        ),
        pytest.param(
            volume(holder={"namespace": "ns", "name": "c", "uid": "u"}),
            VolumePending,
            id="reserved",
        ),
        pytest.param(
            volume(holder={"namespace": "ns", "name": "c", "uid": "old"}), Unbindable, id="of-old"
        ),
        pytest.param(
            volume(holder={"namespace": "ns", "name": "d", "uid": "d"}), Unbindable, id="anothers"
        ),
        pytest.param(volume(uid="other"), Unbindable, id="another-volume"),
        pytest.param(volume(deletionTimestamp="2026-01-01T00:00:00Z"), Unbindable, id="going"),
    ],
)
def test_a_volume_is_reserved_for_nobody_but_its_claim(seen, step: type):
    assert isinstance(may_reserve(GIVEN, seen), step)


def test_patches_name_the_node_and_the_claim():
    assert select("n") == {"metadata": {"annotations": {SELECTED_NODE: "n"}}}
    reference = reserve(GIVEN)["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"], reference["uid"]) == ("ns", "c", "u")
