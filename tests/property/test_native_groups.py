"""A native PodGroup shows what scheduling keeps of it, whatever it showed before."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.binder.intents.desired import as_decided, native_patch
from shared.api.native_groups import NativePodGroup
from shared.api.scheduling import PodGroupPhase
from shared.contracts.messages import DesiredCondition, DesiredNativePodGroup
from shared.jobs.native_groups import (
    INITIALLY_SCHEDULED,
    as_podgroup,
    desired_conditions,
    shown_conditions,
)

NOW = "2026-01-01T00:00:00Z"
PHASES = st.sampled_from(list(PodGroupPhase)).map(str)
WORDS = st.sampled_from(
    ["", "NotEnoughResources", "Quarantined", "two words", "SeeMessage", "ready: 1/2 (x)"]
)
CONDITIONS = st.lists(
    st.builds(
        DesiredCondition,
        type=st.sampled_from(["Scheduled", "Unschedulable", "OfAPlugin"]),
        status=st.sampled_from(["True", "False"]),
        reason=WORDS,
        message=WORDS | st.text(max_size=20),
    ),
    unique_by=lambda condition: condition.type,
    max_size=3,
)
STATUSES = st.lists(st.tuples(PHASES, CONDITIONS), min_size=1, max_size=5)
FOREIGN = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def merged(group: NativePodGroup, conditions: list[dict[str, str]]) -> NativePodGroup:
    """Return a group after a strategic merge patch of its conditions, as the API server does it."""
    by_type = {c["type"]: c for c in msgspec.to_builtins(group).get("status", {})["conditions"]}
    for condition in conditions:
        by_type[condition["type"]] = {**by_type.get(condition["type"], {}), **condition}
    return msgspec.convert({"status": {"conditions": list(by_type.values())}}, NativePodGroup)


def kept(before: list[DesiredCondition], now: list[DesiredCondition]) -> list[DesiredCondition]:
    """Return the conditions of scheduling, which adds and changes, and takes none away."""
    return list({c.type: c for c in (*before, *now)}.values())


@given(STATUSES, st.booleans())
def test_a_status_that_was_written_is_read_back(statuses, compares):
    group = msgspec.convert({"status": {"conditions": [FOREIGN]}}, NativePodGroup)
    known: list[DesiredCondition] = []
    was_scheduled = False
    for phase, conditions in statuses:
        known = kept(known, conditions)
        shown = {} if compares else shown_conditions(group)
        found = desired_conditions(phase, known, shown)
        desired = DesiredNativePodGroup(key="ns/g", uid="u", conditions=found)
        if compares:
            patch, _ = native_patch(desired, group, now=NOW)
        else:
            patch, _ = as_decided(desired, now=NOW)
        group = merged(group, patch.get("conditions", []))
        status = as_podgroup(group).status
        assert status.phase == phase
        read = {c.type: (c.status, c.reason, c.message) for c in status.conditions}
        for condition in known:
            assert read[condition.type] == (condition.status, condition.reason, condition.message)
        assert not desired_conditions(phase, known, shown_conditions(group))
        first = shown_conditions(group).get(INITIALLY_SCHEDULED)
        is_scheduled = first is not None and first.status == "True"
        assert is_scheduled or not was_scheduled
        was_scheduled = is_scheduled
        assert shown_conditions(group)["DisruptionTarget"].status == "True"
