"""Which objects are left out of decisions, for how long, and what lets them go."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from services.scheduler.adapters.marker import WatchdogFiles
from services.scheduler.decide import decide
from services.scheduler.engine.progress import IDLE, Progress, Step
from services.scheduler.overruns import (
    ENTRIES_MAX,
    FIRST_S,
    FORGIVEN,
    LONGEST_S,
    OverrunEntry,
    OverrunQuarantine,
    decode,
    encode,
)
from shared.contracts import messages as m
from shared.runtime.errors import Rejected
from tests.support import world

STEP = Step("allocate", "podgroups", "ns/slow", "u1")


def group(uid: str = "u1", *, members: int = 1, phase: str = "Pending") -> m.Fact:
    return world.fact(
        "podgroups", world.stored_group("ns/slow", uid=uid, phase=phase, minMember=members)
    )


def slow(to: OverrunQuarantine, now: float) -> OverrunEntry:
    return to.put(STEP, plugin="numaaware", why="took 5 s and longer", now=now)


def test_each_offence_doubles_the_time_up_to_the_longest() -> None:
    under, now, lasted = OverrunQuarantine(), 0.0, []
    for _ in range(8):
        until = slow(under, now).until
        lasted.append(until - now)
        assert under.jobs(until - 1)
        assert not under.jobs(until)
        now = until
    assert lasted == [min(FIRST_S * 2**n, LONGEST_S) for n in range(8)]


def test_the_reason_names_plugin_and_action() -> None:
    under = OverrunQuarantine()
    slow(under, 0.0)
    (reason,) = under.jobs(1.0).values()
    assert "plugin numaaware in allocate took 5 s" in reason


def test_a_job_is_let_go_when_what_it_asks_for_changes_and_not_for_our_own_status() -> None:
    under = OverrunQuarantine()
    slow(under, 0.0)
    under.observe([group()], now=1.0)
    under.observe([group(phase="Inqueue")], now=2.0)
    assert under.jobs(3.0)
    under.observe([group(members=2)], now=4.0)
    assert not under.jobs(4.0)
    assert slow(under, 5.0).offences == 2


@pytest.mark.parametrize("fact", [group("u2"), world.gone("podgroups", "ns/slow")])
def test_a_job_that_is_deleted_or_made_anew_starts_without_a_past(fact) -> None:
    under = OverrunQuarantine()
    slow(under, 0.0)
    under.observe([fact], now=1.0)
    assert under.entries() == []


def test_a_job_that_keeps_offending_is_not_let_go_by_changes() -> None:
    """Else its owner stops scheduling again with each change."""
    under = OverrunQuarantine()
    for now in range(FORGIVEN):
        slow(under, float(now))
    under.observe([group()], now=9.0)
    under.observe([group(members=2)], now=10.0)
    assert under.jobs(11.0)


def test_a_death_is_a_suspicion_and_the_second_in_a_row_a_quarantine() -> None:
    under = OverrunQuarantine()
    under.note_death(STEP, now=0.0)
    assert not under.jobs(0.0)
    again = OverrunQuarantine(decode(encode(under.entries())))
    again.note_death(STEP, now=1.0)
    assert again.jobs(2.0)


def test_offences_are_forgotten_in_the_end() -> None:
    under = OverrunQuarantine()
    slow(under, 0.0)
    under.review(FIRST_S + LONGEST_S - 1)
    assert under.entries()
    under.review(FIRST_S + LONGEST_S)
    assert under.entries() == []


@pytest.mark.parametrize("offences", [1, 2, 20])
def test_no_quarantine_outlasts_a_clock_that_was_wrong_when_it_began(offences: int) -> None:
    under = OverrunQuarantine()
    for _ in range(offences):
        slow(under, 1e9)
    now = 1e6
    under.review(now)
    lasts_s = min(FIRST_S * 2 ** (offences - 1), LONGEST_S)
    assert under.jobs(now)
    assert not under.jobs(now + lasts_s)


ENTRIES = st.lists(
    st.builds(
        lambda key, offences, until: OverrunEntry(
            kind="podgroups", key=f"ns/{key}", uid=str(key), stage="allocate", reason="slow",
            offences=offences, until=until,
        ),
        st.integers(0, 5), st.integers(1, 4), st.floats(0, 1e4),
    ),
    max_size=12,
)  # fmt: skip


@given(ENTRIES, ENTRIES)
def test_processes_agree_in_whatever_order_they_learn_of_each_other(one, other) -> None:
    first, second = OverrunQuarantine(one), OverrunQuarantine(other)
    first.merge(other)
    second.merge(one)
    assert first.entries() == second.entries()
    changes = first.changes
    first.merge(second.entries())
    assert first.changes == changes


def test_there_is_a_bound_on_how_many_are_kept() -> None:
    under = OverrunQuarantine()
    for n in range(2 * ENTRIES_MAX):
        under.put(Step("allocate", "podgroups", f"ns/{n}", str(n)), plugin="", why="", now=float(n))
    assert len(under.entries()) == ENTRIES_MAX
    assert under.entries()[0].until >= ENTRIES_MAX


@pytest.mark.parametrize(
    "stored", [b"", b"{", b"[]", b'[{"kind":1}]', b"\xff", b'[{"kind":"\xff"}]']
)
def test_what_cannot_be_read_quarantines_nothing(stored) -> None:
    assert decode(stored) == []


def test_a_quarantined_job_is_not_visited_says_why_and_keeps_nobody_waiting() -> None:
    made = Cluster().node("n1", cpu="4").gang("bad", tasks=1).gang("good", tasks=1)
    steps: list[Step] = []
    plan = decide(
        made.cluster_state,
        made.config,
        now=0.0,
        quarantined={"ns/bad": "quarantined for 60 s: it is slow", "ns/gone": "x"},
        progress=Progress(steps.append),
    )
    assert set(binds_of(plan)) == {"good-0"}
    assert "ns/bad" not in {step.key for step in steps}
    conditions = {g.key: g.conditions for g in plan.podgroups}["ns/bad"]
    said = {c.type: c for c in conditions}["Unschedulable"]
    assert (said.reason, said.message) == ("Quarantined", "quarantined for 60 s: it is slow")
    (why,) = [why for why in plan.explanations if why.job == "ns/bad"]
    assert (why.gate, why.message) == ("quarantine", "quarantined for 60 s: it is slow")


def test_each_step_on_a_job_is_shown_before_it_begins() -> None:
    made = Cluster().node("n1", cpu="4").gang("good", tasks=1)
    steps: list[Step] = []
    progress = Progress(steps.append)
    decide(made.cluster_state, made.config, now=0.0, progress=progress)
    assert {"allocate", "enqueue", "status"} <= {step.stage for step in steps}
    assert ("allocate", "podgroups", "ns/good") in {step[:3] for step in steps}
    assert progress.step == IDLE


DIES = """
import os, signal, sys
from services.scheduler.adapters.marker import WatchdogFiles
from services.scheduler.engine.progress import Step
marker = WatchdogFiles(sys.argv[1])
marker(Step("preempt", "podgroups", "ns/" + "x" * 200, "u0"))
marker(Step("allocate", "podgroups", "ns/slow", "u1"))
if sys.argv[2] == "slow":
    marker.note_slow()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["slow", "fast"])
def test_a_killed_process_leaves_behind_what_it_was_doing(tmp_path: Path, how: str) -> None:
    argv = [sys.executable, "-c", DIES, str(tmp_path), how]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    found = WatchdogFiles(str(tmp_path))
    assert (found.died_at, found.was_slow) == (STEP, how == "slow")
    assert WatchdogFiles(str(tmp_path)).died_at == IDLE


def test_a_process_that_ended_a_decision_leaves_nothing_behind(tmp_path: Path) -> None:
    marker = WatchdogFiles(str(tmp_path))
    marker(STEP)
    marker(IDLE)
    marker.store([])
    assert WatchdogFiles(str(tmp_path)).died_at == IDLE


def test_on_a_full_disk_nothing_is_mapped_and_the_failure_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To touch a page of a map for which the disk has no room is a SIGBUS."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    WatchdogFiles(str(tmp_path))(STEP)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        files = WatchdogFiles(str(tmp_path))
        files(IDLE)
    assert "No space left" in files.failure
    assert WatchdogFiles(str(tmp_path)).died_at == STEP


def test_a_directory_that_cannot_be_written_to_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Rejected, match="--watchdog-dir"):
        WatchdogFiles(str(tmp_path / "file"))
