"""How long jobs are drawn to run: by what they say, by history, and given how long they run."""

import math

import numpy as np
import pytest

from pumice.events import JobPhaseChanged
from services.visibility.forecast.durations import Durations, HistoricJob, History
from shared.api import keys
from shared.jobs.expected_durations import Basis, Expected, size_of, template_of

NIGHTLY = HistoricJob("ns", "default", "ns/nightly")
OTHER = HistoricJob("ns", "default", "ns/other")
STRANGER = HistoricJob("elsewhere", "batch", "elsewhere/x")


def drawn(history: History, subject: HistoricJob, *, stated=None, elapsed=0.0, count=400):
    uniform, durations = np.random.default_rng(1).random, Durations(history)
    if not elapsed:
        return np.array([durations.total_s(subject, stated, uniform) for _ in range(count)])
    return np.array(
        [durations.remaining_s(subject, stated, elapsed, uniform) for _ in range(count)]
    )


def drawn_in_plays(history: History, subject: HistoricJob, *, plays=60):
    """Return a few draws of each of many plays."""
    found = []
    for seed in range(plays):
        uniform, durations = np.random.default_rng(seed).random, Durations(history)
        found += [durations.total_s(subject, None, uniform) for _ in range(5)]
    return np.array(found)


def known(**seconds: float) -> History:
    history = History()
    for _ in range(200):
        for template, each in seconds.items():
            history.ended(HistoricJob("ns", "default", f"ns/{template}"), each)
    return history


def test_a_stated_duration_is_believed_less_what_has_passed():
    stated = Expected(600.0, Basis.ANNOTATION)
    assert set(drawn(known(nightly=9.0), NIGHTLY, stated=stated, elapsed=200.0)) == {400.0}
    assert set(drawn(known(nightly=9.0), NIGHTLY, stated=stated)) == {600.0}


def test_a_job_beyond_its_stated_duration_goes_on_for_a_part_of_it():
    left = drawn(History(), NIGHTLY, stated=Expected(600.0, Basis.ANNOTATION), elapsed=1_000.0)
    assert np.mean(left) == pytest.approx(150.0, rel=0.15)
    late = drawn(History(), NIGHTLY, stated=Expected(600.0, Basis.DEADLINE), elapsed=1_000.0)
    assert set(late) == {30.0}


def stating(ratio: float, *, basis=Basis.ANNOTATION, count=50, subject=OTHER) -> History:
    """Return a history of jobs that took this multiple of what they had stated."""
    history = History()
    for number in range(count):
        stated_s = 100.0 * (1 + number % 7)
        history.ended(subject, ratio * stated_s, stated=Expected(stated_s, basis))
    return history


def test_a_stated_duration_is_stretched_as_those_of_others_were():
    lasting = drawn(stating(2.0), NIGHTLY, stated=Expected(600.0, Basis.ANNOTATION))
    assert np.median(lasting) == pytest.approx(1_200.0, rel=0.06)
    assert lasting.min() > 1_080.0


def test_ratios_of_the_same_template_come_before_those_of_others():
    history = stating(2.0)
    for _ in range(50):
        history.ended(NIGHTLY, 50.0, stated=Expected(100.0, Basis.ANNOTATION))
    stated = Expected(600.0, Basis.ANNOTATION)
    assert np.mean(drawn(history, NIGHTLY, stated=stated) < 400.0) > 0.9
    assert np.mean(drawn(history, OTHER, stated=stated) > 1_000.0) > 0.9


def test_ratios_are_drawn_as_widely_as_they_were_spread():
    history, random = History(), np.random.default_rng(3)
    for off in random.lognormal(0.0, 0.2, 400):
        history.ended(NIGHTLY, 1_000.0 * off, stated=Expected(1_000.0, Basis.ANNOTATION))
    lasting = drawn(history, NIGHTLY, stated=Expected(60.0, Basis.ANNOTATION), count=2_000)
    assert np.std(np.log(lasting)) == pytest.approx(0.2, rel=0.2)


def test_few_ends_do_not_shake_what_a_job_states():
    stated = Expected(600.0, Basis.ANNOTATION)
    assert set(drawn(stating(2.0, count=7), NIGHTLY, stated=stated)) == {600.0}
    assert np.mean(drawn(stating(2.0, count=8), NIGHTLY, stated=stated) > 1_000.0) > 0.5


def test_of_a_job_that_runs_only_ratios_beyond_its_time_are_drawn():
    history = stating(0.5)
    for _ in range(50):
        history.ended(OTHER, 200.0, stated=Expected(100.0, Basis.ANNOTATION))
    stated = Expected(600.0, Basis.ANNOTATION)
    left = drawn(history, NIGHTLY, stated=stated, elapsed=900.0)
    assert 180.0 < left.min() <= left.max() < 420.0


def test_a_job_beyond_all_ratios_goes_on_for_a_part_of_what_it_has_run():
    stated = Expected(600.0, Basis.ANNOTATION)
    left = drawn(stating(0.5), NIGHTLY, stated=stated, elapsed=1_000.0)
    assert np.mean(left) == pytest.approx(150.0, rel=0.15)


def test_deadlines_and_annotations_have_ratios_of_their_own():
    history = stating(0.25, basis=Basis.DEADLINE)
    assert set(drawn(history, NIGHTLY, stated=Expected(600.0, Basis.ANNOTATION))) == {600.0}
    lasting = drawn(history, NIGHTLY, stated=Expected(600.0, Basis.DEADLINE))
    assert np.median(lasting) == pytest.approx(150.0, rel=0.06)


def test_a_pod_does_not_outlive_its_deadline_by_more_than_its_grace():
    history = stating(1.5, basis=Basis.DEADLINE)
    assert set(drawn(history, NIGHTLY, stated=Expected(600.0, Basis.DEADLINE))) == {630.0}


def test_jobs_of_a_kind_that_misjudge_in_batches_do_so_together_in_a_play():
    history, random = History(), np.random.default_rng(5)
    stated = Expected(600.0, Basis.ANNOTATION)
    for long in random.permutation([False, True] * 15):
        for _ in range(10):
            history.ended(NIGHTLY, 1_800.0 if long else 200.0, stated=stated)
    plays = []
    for seed in range(60):
        uniform, durations = np.random.default_rng(seed).random, Durations(history)
        plays.append(np.log([durations.total_s(NIGHTLY, stated, uniform) for _ in range(30)]))
    assert np.std(np.mean(plays, axis=1)) / np.std(plays) > 0.5


def test_jobs_of_the_same_template_come_before_others_of_the_queue():
    history = known(nightly=60.0, other=7_200.0)
    assert np.mean(drawn(history, NIGHTLY) < 70.0) > 0.95
    assert np.mean(drawn(history, OTHER) > 6_000.0) > 0.95


def test_a_job_of_an_unknown_template_is_drawn_from_its_queue():
    left = drawn(known(nightly=60.0, other=7_200.0), HistoricJob("ns", "default", "ns/new"))
    assert 0.35 < np.mean(left < 70.0) < 0.65


def test_jobs_of_a_kind_that_comes_in_batches_are_long_or_short_together():
    history, random = History(), np.random.default_rng(5)
    for _ in range(300):
        history.ended(OTHER, float(random.lognormal(6.0, 1.5)))
    for long in random.permutation([False, True] * 15):
        for _ in range(10):
            history.ended(NIGHTLY, 7_200.0 if long else 60.0)

    def spread(subject: HistoricJob) -> float:
        """Return how far the means of plays are apart, against that of single jobs."""
        plays = []
        for seed in range(60):
            uniform, durations = np.random.default_rng(seed).random, Durations(history)
            drawn_ = [durations.total_s(subject, None, uniform) for _ in range(30)]
            plays.append(np.log(drawn_))
        return float(np.std(np.mean(plays, axis=1)) / np.std(plays))

    alone = 1 / math.sqrt(30)
    assert spread(NIGHTLY) > 1.5 * alone
    assert spread(OTHER) < 1.2 * alone


def test_jobs_are_expected_to_be_like_the_latest_where_those_of_a_user_come_in_batches():
    history, seconds = History(), 0.0
    for number in range(400):
        seconds = 7_200.0 if number // 20 % 2 else 60.0
        history.ended(HistoricJob("ns", "default", f"ns/{number}"), seconds)
    assert seconds == 7_200.0
    lasting = drawn_in_plays(history, HistoricJob("ns", "default", "ns/x"))
    assert np.mean(lasting > 6_000.0) > 0.7


def test_the_latest_jobs_count_for_no_more_than_others_where_they_tell_nothing():
    history, random = History(), np.random.default_rng(3)
    for seconds in random.lognormal(6.0, 1.5, 400):
        history.ended(NIGHTLY, float(seconds))
    weights = history.weights(NIGHTLY)
    assert sum(weights) == pytest.approx(1.0)
    assert sum(weights[3:]) < 0.05


def test_jobs_of_the_same_size_come_before_those_of_the_template_where_size_tells_more():
    history = History()
    for number in range(300):
        large = number % 2 == 1
        size = "large" if large else "small"
        subject = HistoricJob("ns", "default", f"ns/{number // 2 % 3}", size)
        history.ended(subject, 7_200.0 if large else 60.0)
    assert (
        np.mean(drawn_in_plays(history, HistoricJob("ns", "default", "ns/0", "large")) > 6e3) > 0.9
    )
    assert (
        np.mean(drawn_in_plays(history, HistoricJob("ns", "default", "ns/0", "small")) < 70.0) > 0.9
    )


def test_each_user_has_ways_of_his_own():
    history = History()
    for number in range(400):
        by_template = 7_200.0 if number % 2 else 60.0
        history.ended(HistoricJob("one", "default", f"one/{number % 2}"), by_template)
        in_batches = 7_200.0 if number // 20 % 2 else 60.0
        history.ended(HistoricJob("two", "default", f"two/{number % 3}"), in_batches)
    assert np.mean(drawn_in_plays(history, HistoricJob("one", "default", "one/0")) < 70.0) > 0.9
    assert np.mean(drawn_in_plays(history, HistoricJob("two", "default", "two/0")) > 6e3) > 0.7


def test_sizes_are_learnt_from_events():
    history = History()
    for number in range(100):
        pods = 1 + 7 * (number % 2)
        event = JobPhaseChanged(
            job=f"ns/x-{number}", uid="u", phase="Completed", previous="Running", queue="default",
            template="ns/x", seconds_running=60.0 * pods, min_resources={"cpu": f"{pods}"},
        )  # fmt: skip
        history.learn(event)
    small, large = (
        HistoricJob("ns", "default", "ns/x", size_of({"cpu": n})) for n in (1_000, 8_000)
    )
    assert np.mean(drawn_in_plays(history, small) < 70.0) > 0.9
    assert np.mean(drawn_in_plays(history, large) > 400.0) > 0.9


def test_an_event_with_an_amount_that_is_none_teaches_durations_all_the_same():
    history = History()
    event = JobPhaseChanged(
        job="ns/nightly-7", uid="u", phase="Completed", previous="Running", queue="default",
        template="ns/nightly", seconds_running=60.0, min_resources={"cpu": "many"},
    )  # fmt: skip
    history.learn(event)
    assert history.knows(NIGHTLY)


def test_jobs_that_need_about_as_much_are_of_one_size():
    assert size_of({"cpu": 7_000, "memory": 5 << 30}) == size_of({"cpu": 8_000, "memory": 7 << 30})
    assert size_of({"cpu": 8_000}) != size_of({"cpu": 16_000})
    assert size_of({"cpu": 8_000}) != size_of({"cpu": 8_000, "nvidia.com/gpu": 1_000})
    quota = {"requests.cpu": 8_000, "limits.cpu": 9_000, "count/pods": 1_000, "memory": 0}
    assert size_of({"cpu": 8_000, **quota}) == size_of({"cpu": 8_000})


def test_a_job_that_nothing_is_known_of_lasts_between_a_minute_and_a_day():
    left = drawn(History(), STRANGER)
    assert 60.0 <= left.min() < 120.0
    assert 43_200.0 < left.max() <= 86_400.0


def test_the_time_that_a_job_runs_already_is_a_condition():
    history = known(nightly=60.0)
    for _ in range(100):
        history.ended(NIGHTLY, 3_600.0)
    left = drawn(history, NIGHTLY, elapsed=300.0)
    assert left.min() > 0.0
    assert np.median(left) == pytest.approx(3_300.0, rel=0.1)


def test_a_job_that_outlived_everything_lasts_as_long_again():
    left = drawn(known(nightly=60.0), NIGHTLY, elapsed=200_000.0, count=2_000)
    assert np.median(left) == pytest.approx(200_000.0, rel=0.15)


def test_jobs_that_run_still_count_among_those_of_their_kind():
    history, uniform = History(), np.random.default_rng(1).random
    for _ in range(10):
        history.ended(NIGHTLY, 60.0)
    durations = Durations(history)
    for _ in range(30):
        assert durations.remaining_s(NIGHTLY, None, 5_000.0, uniform) > 0.0
    lasting = np.array([durations.total_s(NIGHTLY, None, uniform) for _ in range(400)])
    assert 0.6 < np.mean(lasting > 5_000.0) < 0.9


def test_history_is_learnt_from_jobs_that_leave_the_phase_running():
    history = History()
    event = JobPhaseChanged(
        job="ns/nightly-7", uid="u", phase="Completed", previous="Running", queue="default",
        template="ns/nightly", seconds_running=60.0,
    )  # fmt: skip
    for _ in range(50):
        history.learn(event)
    assert np.median(drawn(history, NIGHTLY)) == pytest.approx(60.0, rel=0.11)
    assert Durations(history).basis(NIGHTLY, None) is Basis.HISTORY


def test_ratios_are_learnt_from_runs_that_were_not_cut_off():
    def lasting(phase: str) -> float:
        history = History()
        for _ in range(50):
            event = JobPhaseChanged(
                job="ns/nightly-7", uid="u", phase=phase, previous="Running", queue="default",
                template="ns/nightly", seconds_running=60.0, seconds_stated=120.0,
                stated_by="annotation",
            )  # fmt: skip
            history.learn(event)
        stated = Expected(600.0, Basis.ANNOTATION)
        return float(np.median(drawn(history, NIGHTLY, stated=stated)))

    for phase in ("Completing", "Completed", "Failed"):
        assert lasting(phase) == pytest.approx(300.0, rel=0.06)
    for phase in ("Restarting", "Aborting", "Pending", "Terminating"):
        assert lasting(phase) == 600.0


def test_a_run_that_was_cut_off_tells_no_duration():
    history = History()
    for phase in ("Restarting", "Aborting", "Pending", "Terminating"):
        history.learn(
            JobPhaseChanged(
                job="ns/nightly-7", uid="u", phase=phase, previous="Running", queue="default",
                template="ns/nightly", seconds_running=5.0,
            )
        )  # fmt: skip
    assert not history.knows(NIGHTLY)


def test_a_duration_is_a_guess_until_a_few_similar_jobs_have_ended():
    history = History()
    for basis in (Basis.DEFAULT, Basis.DEFAULT, Basis.DEFAULT, Basis.HISTORY):
        assert Durations(history).basis(NIGHTLY, None) is basis
        history.ended(NIGHTLY, 50.0)
    elsewhere = HistoricJob("elsewhere", "other", "elsewhere/x")
    assert Durations(history).basis(elsewhere, None) is Basis.OTHERS


@pytest.mark.parametrize(
    ("seconds_stated", "stated_by"), [(120.0, "oracle"), (0.0, "annotation"), (-1.0, "deadline")]
)
def test_a_stated_duration_that_says_nothing_teaches_no_ratio(seconds_stated, stated_by):
    history = History()
    for _ in range(50):
        event = JobPhaseChanged(
            job="ns/nightly-7", uid="u", phase="Completed", previous="Running", queue="default",
            seconds_running=60.0, seconds_stated=seconds_stated, stated_by=stated_by,
        )  # fmt: skip
        history.learn(event)
    for basis in (Basis.ANNOTATION, Basis.DEADLINE):
        assert set(drawn(history, NIGHTLY, stated=Expected(600.0, basis))) == {600.0}
    assert np.median(drawn(history, NIGHTLY)) == pytest.approx(60.0, rel=0.11)


@pytest.mark.parametrize(
    ("phase", "previous", "seconds_running"),
    [("Running", "Pending", 0.0), ("Completed", "Completing", 0.0), ("Failed", "Running", 0.0)],
)
def test_other_events_teach_nothing(phase, previous, seconds_running):
    history = History()
    history.learn(
        JobPhaseChanged(
            job="ns/a", uid="u", phase=phase, previous=previous, seconds_running=seconds_running
        )
    )
    assert len(history) == 0
    assert Durations(history).basis(NIGHTLY, None) is Basis.DEFAULT


def test_the_kinds_that_ended_longest_ago_are_forgotten():
    history = History(most=10)
    for number in range(100):
        history.ended(HistoricJob("ns", "q", f"ns/{number}"), 5.0)
    assert len(history) == 10
    assert history.levels(HistoricJob("ns", "q", "ns/99"))[0].count == 1.0
    assert history.levels(HistoricJob("ns", "q", "ns/0"))[0].count == 0.0


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train", "train"),
        ("train-7", "train"),
        ("nightly-28912345", "nightly"),
        ("sweep-x7k2p", "sweep"),
        ("run-2024-11-23", "run"),
        ("job-3f2a9c1e", "job"),
        ("17", "17"),
        ("deep-water", "deep-water"),
    ],
)
def test_jobs_that_are_numbered_or_named_by_machines_share_a_template(name, stem):
    assert template_of(f"ns/{name}", {}) == f"ns/{stem}"


def test_a_job_of_a_flow_has_its_job_template():
    assert template_of("ns/flow-a", {keys.CREATED_BY_TEMPLATE: "ns.a"}) == "ns.a"
