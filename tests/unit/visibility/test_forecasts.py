"""Forecasts of small clusters whose course can be told by hand."""

from collections.abc import Iterable
from itertools import count

import numpy as np
import pytest

from pumice.testing import Cluster
from services.scheduler.engine.nodes.nodes import Nodes
from services.scheduler.policy.unschedulable_policy import UnschedulablePolicy
from services.visibility.forecast import simulation
from services.visibility.forecast.arrivals import JobArrivals
from services.visibility.forecast.durations import HistoricJob, History
from services.visibility.forecast.forecaster import Forecaster, forecast
from services.visibility.forecast.simulation import SchedulerRules, SimulationBounds, waiting
from shared.api import keys, kinds
from shared.api import time as times
from tests.support.world import named

NOW = times.parse("2026-01-01T00:00:00Z")
CONF = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: predicates}, {name: nodeorder}]
"""
PREEMPTING = """
actions: "enqueue, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""


def lasting(world: Cluster, name: str, seconds: int, *, phase="Inqueue", at="00", **more) -> None:
    """Add a group of pods that says how long it runs."""
    meta = named(
        f"ns/{name}",
        annotations={keys.EXPECTED_DURATION: str(seconds)} if seconds else {},
        creationTimestamp=f"2026-01-01T00:00:{at}Z",
        **({"ownerReferences": [more.pop("owner")]} if "owner" in more else {}),
    )
    spec = {"minMember": more.pop("pods", 1), "queue": more.pop("queue", "default"), **more}
    document = {"metadata": meta, "spec": spec, "status": {"phase": phase} if phase else {}}
    world.put(kinds.PODGROUP, document)


def running(world: Cluster, name: str, seconds: int, node: str, **more) -> None:
    lasting(world, name, seconds, phase="Running", **more)
    world.pod(f"{name}-0", name, cpu="4", node=node, status={"startTime": "2026-01-01T00:00:00Z"})


def pending(world: Cluster, name: str, seconds: int, *, pods: int = 1, **more) -> None:
    lasting(world, name, seconds, pods=pods, **more)
    for number in range(pods):
        world.pod(f"{name}-{number}", name, cpu="4")


def asked(world: Cluster, history: History | None = None, **more):
    rules = SchedulerRules(world.config, world.plugins)
    return forecast(world.cluster_state, rules, history or History(), now=NOW, **more)


def starts(found) -> dict[str, float | None]:
    """Return job → seconds until the median of its start."""
    return {
        key.partition("/")[2]: None if each.median is None else times.parse(each.median) - NOW
        for key, each in found.items()
    }


def two_nodes() -> Cluster:
    world = Cluster(CONF).node("n1", cpu="4").node("n2", cpu="4")
    running(world, "first", 100, "n1")
    running(world, "second", 200, "n2")
    return world


def test_a_job_starts_when_the_first_running_one_ends():
    world = two_nodes()
    pending(world, "a", 50)
    found = asked(world)
    assert starts(found) == {"a": 100.0}
    assert found["ns/a"].latest == found["ns/a"].median
    assert (found["ns/a"].basis, found["ns/a"].unknown) == ("annotation", "")


def test_a_line_of_jobs_starts_one_after_another():
    world = two_nodes()
    for number, at in enumerate(("01", "02", "03")):
        pending(world, f"j{number}", 300, at=at)
    assert starts(asked(world)) == {"j0": 100.0, "j1": 200.0, "j2": 400.0}


def test_a_gang_waits_until_all_of_its_pods_have_room():
    world = two_nodes()
    pending(world, "gang", 10, pods=2)
    assert starts(asked(world)) == {"gang": 200.0}


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_a_job_that_has_lost_all_its_pods_runs_again_and_ends(phase):
    world = Cluster(CONF).node("n1", cpu="4")
    lasting(world, "displaced", 300, phase=phase)
    world.pod("displaced-0", "displaced", cpu="4")
    pending(world, "a", 50, at="01")
    assert starts(asked(world)) == {"a": 300.0}


def test_what_fits_now_starts_now():
    world = two_nodes().node("n3", cpu="4")
    pending(world, "a", 50)
    assert starts(asked(world)) == {"a": 0.0}


def test_a_job_that_no_node_is_large_enough_for_never_starts_and_why():
    world = two_nodes()
    lasting(world, "wide", 10)
    world.pod("wide-0", "wide", cpu="64")
    found = asked(world)["ns/wide"]
    assert (found.median, found.latest) == (None, None)
    assert found.unknown == (
        "never with the nodes and queues that there are: "
        "needs 64 cpu on one node, the largest has 4"
    )


def test_pods_that_are_imagined_are_not_named():
    conf = CONF.replace("{name: overcommit}", "{name: proportion}")
    world = Cluster(conf).queue("small", capability={"cpu": "4"}).node("n1", cpu="64")
    lasting(world, "wide", 10, pods=2, queue="small", phase="Pending", minResources={"cpu": "16"})
    found = asked(world)["ns/wide"]
    assert found.unknown.startswith("never with the nodes and queues that there are: ")
    assert "~" not in found.unknown


def test_a_job_behind_one_that_runs_for_weeks_is_not_within_seven_days():
    world = Cluster(CONF).node("n1", cpu="4")
    running(world, "long", 30 * 86_400, "n1")
    pending(world, "a", 50)
    found = asked(world)["ns/a"]
    assert found.median is None
    assert found.unknown.startswith("not within 7 days: waits for cpu")


def test_pods_of_a_service_are_never_expected_to_end():
    world = Cluster(CONF).node("n1", cpu="4")
    owner = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
        "controller": True,
    }  # fmt: skip
    running(world, "web", 0, "n1", owner=owner)
    pending(world, "a", 50)
    assert "never with the nodes" in asked(world)["ns/a"].unknown


def test_a_job_without_pods_gets_them_when_its_queue_lets_it_in():
    world = two_nodes()
    lasting(world, "later", 50, pods=2, phase="Pending", minResources={"cpu": "8"})
    found = asked(world)
    assert starts(found) == {"later": 200.0}


def test_a_job_of_higher_priority_evicts_and_the_victim_waits_again():
    world = Cluster(PREEMPTING).node("n1", cpu="4")
    for name, value in (("low", 10), ("high", 1000)):
        world.put(kinds.PRIORITYCLASS, {"metadata": named(name), "value": value})
    running(world, "victim", 1_000, "n1", priorityClassName="low", pods=0)
    lasting(world, "urgent", 60, priorityClassName="high")
    world.pod("urgent-0", "urgent", cpu="4", priority=1000)
    pending(world, "next", 10, priorityClassName="low", at="05")
    found = starts(asked(world))
    assert found["urgent"] == 0.0
    assert found["next"] == 60.0


def test_quantiles_of_the_start_are_those_of_the_durations():
    world = Cluster(CONF).node("n1", cpu="4")
    running(world, "mixed-1", 0, "n1")
    pending(world, "a", 50)
    history = History()
    for seconds in np.random.default_rng(2).permutation(np.linspace(100.0, 1_100.0, 400)):
        history.ended(HistoricJob("ns", "default", "ns/mixed"), float(seconds))
    found = asked(world, history, draws=200)["ns/a"]
    assert times.parse(found.median) - NOW == pytest.approx(600.0, rel=0.15)
    assert times.parse(found.latest) - NOW == pytest.approx(1_000.0, rel=0.1)
    assert found.basis == "annotation, history"


def crowded() -> Cluster:
    """Jobs of unknown durations on four nodes, and a line before them."""
    world = Cluster(CONF)
    for number in range(4):
        world.node(f"n{number}", cpu="4")
        running(world, f"old{number}", 0, f"n{number}")
    for number in range(6):
        pending(world, f"new{number}", 0, pods=1 + number % 3, at=f"{number:02}")
    return world


def test_the_same_seed_gives_the_same_answers_and_another_seed_others():
    history = History()
    for seconds in (60.0, 100.0, 300.0, 1_000.0, 3_000.0):
        history.ended(HistoricJob("ns", "default", "ns/old"), seconds)
    first, second = (asked(crowded(), history, seed=7) for _ in range(2))
    assert first == second
    assert asked(crowded(), history, seed=8) != first


def state_of(world: Cluster):
    ledger, jobs = world.cluster_state.nodes.ledger, world.cluster_state.jobs
    arrays = (ledger.used, ledger.releasing, ledger.pipelined, ledger.scoring)
    groups = {
        job.key: (
            job.phase,
            job.sums.value.tolist(),
            {t.uid: (t.status, t.node) for t in job.tasks.values()},
            {role: tuple(counts) for role, counts in job.roles.items()},
        )
        for job in jobs.all()
    }
    return [array.tolist() for array in arrays], groups


@pytest.mark.parametrize("make", [crowded, two_nodes])
def test_the_cluster_state_is_the_same_afterwards(make):
    world, other = make(), make()
    before = state_of(world)
    asked(world, draws=5)
    assert state_of(world) == before
    assert world.cluster_state.audit() == []
    assert world.cluster_state.is_consistent
    assert world.decide() == other.decide()


def test_a_state_that_cannot_be_taken_back_is_not_whole(monkeypatch):
    world = two_nodes()
    pending(world, "a", 50)

    def broken(self, task):
        raise RuntimeError("no")

    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History())
    monkeypatch.setattr(Nodes, "hold", broken)
    with pytest.raises(RuntimeError, match="no"):
        forecaster.draw(world.cluster_state, now=NOW)
    assert not world.cluster_state.is_consistent


def test_jobs_that_the_engine_need_not_visit_start_when_they_would_otherwise(monkeypatch):
    def line() -> Cluster:
        world = crowded()
        for number in range(12):
            minimum = {"cpu": str(4 + 4 * (number % 3))}
            lasting(world, f"later{number}", 0, phase="Pending", pods=1, minResources=minimum)
        return world

    bounds = SimulationBounds(moments=60)
    unschedulable = asked(line(), draws=4, bounds=bounds)
    monkeypatch.setattr(simulation, "unschedulable_policy", lambda *_: UnschedulablePolicy())
    assert asked(line(), draws=4, bounds=bounds) == unschedulable


def test_ends_that_count_as_one_moment_do_not_delay_a_line():
    world = Cluster(CONF).node("n1", cpu="4").node("small", cpu="2")
    world.queue("apart")
    for number in range(150):
        running(world, f"busy{number}", 13 * number + 5, "small", queue="apart")
    running(world, "first", 100, "n1")
    for number in range(20):
        pending(world, f"j{number:02}", 100, at=f"{number:02}")
    found = starts(asked(world, draws=1, bounds=SimulationBounds(together=0.05)))
    assert found["j19"] == pytest.approx(2_000.0, rel=0.1)


def small_jobs(ago_s: Iterable[float]) -> JobArrivals:
    """Return jobs of one pod for 40 s that came so many seconds ago."""
    arrivals, source = JobArrivals(), Cluster(CONF)
    for number, before in enumerate(ago_s):
        lasting(source, f"small{number}", 40, minResources={"cpu": "4"})
        source.pod(f"small{number}-0", f"small{number}", cpu="4")
        arrivals.note(source.job(f"small{number}"), source.cluster_state.dimensions, NOW - before)
    return arrivals


def before_a_gang(arrivals: JobArrivals) -> float | None:
    """Return after how many seconds a gang starts that waits for two nodes."""
    world = Cluster(CONF).node("n1", cpu="4").node("n2", cpu="4")
    running(world, "first", 60, "n1")
    running(world, "second", 90, "n2")
    pending(world, "gang", 10, pods=2)
    return starts(asked(world, arrivals=arrivals, draws=5, bounds=SimulationBounds(moments=40)))[
        "gang"
    ]


def test_jobs_to_come_are_expected_to_pass_a_gang_that_waits_for_room():
    assert before_a_gang(JobArrivals()) == 90.0
    late = before_a_gang(small_jobs(range(3_600, 0, -10)))
    assert late is None or late > 90.0


def test_a_burst_of_seconds_is_not_expected_again_before_a_gang_starts():
    assert before_a_gang(small_jobs([13.0 - 3.0 * number / 100 for number in range(100)])) == 90.0


def test_few_arrivals_tell_nothing():
    arrivals, source = JobArrivals(), two_nodes()
    arrivals.note(source.job("first"), source.cluster_state.dimensions, NOW)
    assert arrivals.future(NOW, np.random.default_rng(1).random).at == float("inf")


def test_jobs_that_are_there_at_first_are_no_arrivals():
    arrivals, world = JobArrivals(), two_nodes()
    arrivals.review(world.cluster_state, NOW)
    assert len(arrivals) == 0
    pending(world, "a", 50)
    arrivals.review(world.cluster_state, NOW)
    arrivals.review(world.cluster_state, NOW)
    assert len(arrivals) == 1


def test_a_play_stays_within_its_bounds():
    world = Cluster(CONF).node("n1", cpu="4")
    running(world, "first", 10, "n1")
    for number in range(30):
        pending(world, f"j{number:02}", 100, at=f"{number:02}")
    found = asked(world, draws=2, bounds=SimulationBounds(moments=5))
    known = [key for key, each in found.items() if each.median is not None]
    assert 3 <= len(known) <= 6
    assert found["ns/j29"].unknown.startswith("not within 6m50s")


def test_a_play_that_has_been_enough_knows_the_jobs_that_start_soon():
    world = Cluster(CONF).node("n1", cpu="4")
    running(world, "first", 10, "n1")
    for number in range(10):
        pending(world, f"j{number}", 100, at=f"{number:02}")
    before = state_of(world)
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=1)
    left = iter([False, False, True] * 2)  # a look ahead, and a play
    forecaster.draw(world.cluster_state, now=NOW, out_of_time=lambda: next(left))
    assert state_of(world) == before
    assert forecaster.estimate("ns/j1").median == NOW + 110.0
    assert forecaster.expected("ns/j2").unknown.startswith("not within 1m50s")


def test_a_play_that_hurries_looks_as_far_and_says_which_jobs_it_leaves_out():
    def line() -> Cluster:
        world = Cluster(CONF).node("n1", cpu="4")
        running(world, "first", 10, "n1")
        for number in range(10):
            pending(world, f"j{number}", 100, at=f"{number:02}")
        return world

    def found(*, hurries: bool):
        world, arrivals = line(), small_jobs(range(3_600, 0, -4))
        forecaster = Forecaster(
            SchedulerRules(world.config, world.plugins), History(), arrivals=arrivals, draws=2
        )
        forecaster.draw(world.cluster_state, now=NOW, out_of_time=lambda: True)
        moments, hurry = count(), count()
        forecaster.draw(
            world.cluster_state,
            now=NOW,
            out_of_time=lambda: next(moments) == 40,
            hurried=lambda: hurries and next(hurry) > 10,
        )
        return forecaster.expected("ns/j0"), forecaster.expected("ns/j9")

    first, last = found(hurries=False)
    assert (last.median, last.basis) == (None, "annotation")
    first, last = found(hurries=True)
    assert 910.0 <= times.parse(last.median) - NOW <= 1_100.0, "few came before it"
    assert last.basis.startswith("annotation; without jobs that come after ")
    assert first.basis == "annotation", "it starts before any job is left out"


def test_a_look_ahead_that_has_taken_the_time_is_followed_by_a_play_the_next_time():
    world = two_nodes()
    pending(world, "a", 50)
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=1)
    forecaster.draw(world.cluster_state, now=NOW, hurried=lambda: True)
    assert forecaster.expected("ns/a") is None
    forecaster.draw(world.cluster_state, now=NOW, hurried=lambda: True)
    assert forecaster.estimate("ns/a").median == NOW + 100.0


def test_one_play_that_was_cut_short_does_not_say_how_far_the_others_went():
    world = Cluster(CONF).node("n1", cpu="4")
    running(world, "first", 10, "n1")
    for number in range(10):
        pending(world, f"j{number}", 100, at=f"{number:02}")
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=3)

    def draw(moments: int, plays: int = 1) -> None:
        left = iter(([False] * moments + [True]) * plays)
        forecaster.draw(world.cluster_state, now=NOW, out_of_time=lambda: next(left))

    draw(2, plays=2)  # a look ahead, and a play
    draw(1)
    draw(2)

    assert forecaster.expected("ns/j9").unknown.startswith("not within 1m50s")
    assert forecaster.expected("ns/j1").unknown.startswith("perhaps later than ")


def test_a_play_that_gets_nowhere_in_its_time_says_nothing():
    world = crowded()
    forecaster = Forecaster(SchedulerRules(world.config, world.plugins), History(), draws=2)
    forecaster.draw(world.cluster_state, now=NOW, out_of_time=lambda: True)
    assert forecaster.expected("ns/new0") is None
    forecaster.draw(world.cluster_state, now=NOW)
    known = forecaster.expected("ns/new0")
    forecaster.draw(world.cluster_state, now=NOW, out_of_time=lambda: True)
    assert known is not None
    assert forecaster.expected("ns/new0") == known


def test_draws_one_at_a_time_give_what_all_at_once_give():
    world, rolling = crowded(), crowded()
    forecaster = Forecaster(
        SchedulerRules(rolling.config, rolling.plugins), History(), draws=6, seed=7
    )
    for _ in range(6):
        forecaster.draw(rolling.cluster_state, now=NOW)
    keys_ = waiting(rolling.cluster_state)
    assert {key: forecaster.expected(key) for key in keys_} == asked(world, draws=6, seed=7)


def test_a_job_is_unknown_before_the_first_draw():
    world = crowded()
    assert Forecaster(SchedulerRules(world.config), History()).expected("ns/new0") is None
