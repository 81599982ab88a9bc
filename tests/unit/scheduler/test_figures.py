"""What cycles tell dashboards of queues and jobs, under Volcano's names (ME1 to ME4)."""

import pytest

from pumice.testing import Cluster
from services.scheduler.adapters.figure_pages import FigurePages
from services.scheduler.adapters.report import Timings
from services.scheduler.cycle_metrics import EVERY_S, JOBS_MAX, CycleMetrics, Figures, placements
from services.scheduler.decide import CyclePart, decide
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.session.session import Session
from shared.api import kinds
from shared.runtime.metrics import Metrics, steps

NOBODY_IS_PLACED = 'actions: "enqueue"\ntiers:\n- plugins: [{name: gang}, {name: drf}, '
PROPORTION = NOBODY_IS_PLACED + "{name: proportion}]\n"
CAPACITY = NOBODY_IS_PLACED + "{name: capacity}]\n"
TREE = NOBODY_IS_PLACED + "{name: capacity, enableHierarchy: true}]\n"
CREATED_S = 1767225600  # 2026-01-01T00:00:00Z
GIB = 1024**3


def cycle(world: Cluster, metrics: CycleMetrics, *, now: float = 0.0) -> Plan:
    def look(session: Session, _: Plan) -> None:
        metrics.observe(session)

    return decide(world.cluster_state, world.config, now=now, inspect=look)


def figures_of(world: Cluster, metrics: CycleMetrics, *, now: float = 0.0) -> Figures | None:
    cycle(world, metrics, now=now)
    metrics.settle(world.cluster_state.jobs)
    return metrics.sample.figures


def page_of(figures: Figures | None) -> dict[str, float]:
    """Return name and labels, without `volcano_` in front → value, as a scrape would see it."""
    assert figures is not None
    metrics, pages = Metrics(), FigurePages()
    metrics.registry.register(pages)
    pages.show(figures)
    return scraped(metrics)


def scraped(metrics: Metrics) -> dict[str, float]:
    lines = metrics.render().decode().splitlines()
    told = (line.rsplit(" ", 1) for line in lines if line.startswith("volcano_"))
    return {name.removeprefix("volcano_"): float(value) for name, value in told}


def expect(page: dict[str, float], **queues: dict[str, float | None]) -> None:
    """Compare figures of queues; None: there must be no such series."""
    wanted = {
        f'queue_{figure}{{queue_name="{queue}"}}': value
        for queue, told in queues.items()
        for figure, value in told.items()
    }
    assert {key: page.get(key) for key in wanted} == wanted


def proportional() -> Cluster:
    """Eight CPUs: `a` runs on four, `b` would like four, `c` has no jobs."""
    world = Cluster(PROPORTION, queue=False).node("n1", cpu="8", memory="16Gi")
    world.queue("a", weight=3).queue("b", weight=1).queue("c", weight=2)
    world.gang("run", tasks=4, queue="a", phase="Running", node="n1", memory="1Gi")
    return world.gang("wait", tasks=2, cpu="2", queue="b", minResources={"cpu": "4"})


def test_proportion_tells_what_queues_have_want_and_deserve_me3_me4():
    # Dealt out 3 : 1 are 6000 and 2000; `a` wants no more than 4000, so `b` gets its 4000, too.
    page = page_of(figures_of(proportional(), CycleMetrics()))
    expect(
        page,
        a={
            "allocated_milli_cpu": 4000,
            "allocated_memory_bytes": 4 * GIB,
            "request_milli_cpu": 4000,
            "deserved_milli_cpu": 4000,
            "deserved_memory_bytes": 4 * GIB,
            "inqueue_milli_cpu": 0,
            "share": 1,
            "weight": 3,
            "overused": 1,
            "capacity_milli_cpu": None,
            "real_capacity_milli_cpu": None,
        },
        b={
            "allocated_milli_cpu": 0,
            "request_milli_cpu": 4000,
            "deserved_milli_cpu": 4000,
            "inqueue_milli_cpu": 4000,
            "share": 0,
            "weight": 1,
            "overused": 0,
        },
        c={"allocated_milli_cpu": 0, "deserved_milli_cpu": 0, "share": 0, "overused": 0},
    )
    assert page['queue_allocated_scalar_resources{queue_name="a",resource="pods"}'] == 4
    assert page['job_share{job_id="run",job_ns="ns"}'] == 0.5  # four of eight CPUs
    assert page['job_share{job_id="wait",job_ns="ns"}'] == 0


def test_scalars_are_told_in_thousandths_as_far_as_a_node_has_them_me4():
    world = Cluster(PROPORTION, queue=False).node("n1", nvidia_com__gpu="8").queue("a").queue("b")
    more = {"nvidia.com/gpu": "2", "example.com/fpga": "1"}
    world.gang("g", tasks=1, queue="a", phase="Running", node="n1", requests=more)
    page = page_of(figures_of(world, CycleMetrics()))
    held = {key: value for key, value in page.items() if "allocated_scalar" in key}
    assert held == {
        'queue_allocated_scalar_resources{queue_name="a",resource="pods"}': 1,
        'queue_allocated_scalar_resources{queue_name="a",resource="nvidia.com/gpu"}': 2000,
        'queue_allocated_scalar_resources{queue_name="b",resource="pods"}': 0,
        'queue_allocated_scalar_resources{queue_name="b",resource="nvidia.com/gpu"}': 0,
    }


def test_capacity_tells_what_queues_state_and_what_they_can_have_me4():
    world = Cluster(CAPACITY, queue=False).node("n1", cpu="8", memory="16Gi")
    world.queue("a", deserved={"cpu": "2"}, capability={"cpu": "6"})
    world.queue("b", guarantee={"resource": {"cpu": "1"}})
    world.gang("run", tasks=4, queue="a", phase="Running", node="n1")
    expect(
        page_of(figures_of(world, CycleMetrics())),
        a={
            "allocated_milli_cpu": 4000,
            "deserved_milli_cpu": 2000,
            "share": 2,
            "overused": 1,
            "weight": None,
            "capacity_milli_cpu": 6000,
            "capacity_memory_bytes": float("inf"),  # it says nothing of memory
            "real_capacity_milli_cpu": 6000,  # seven are not guaranteed to others
            "real_capacity_memory_bytes": 16 * GIB,
        },
        b={
            "allocated_milli_cpu": 0,
            "deserved_milli_cpu": 1000,
            "share": 0,
            "overused": 0,
            "capacity_milli_cpu": None,
            "real_capacity_milli_cpu": 8000,
        },
    )


def test_a_tree_of_queues_tells_every_level_me4():
    world = Cluster(TREE, queue=False).node("n1", cpu="8")
    world.queue("root").queue("eng", capability={"cpu": "6"})
    world.queue("dev", parent="eng", deserved={"cpu": "1"}).queue("ops", parent="eng")
    world.gang("run", tasks=3, queue="dev", phase="Running", node="n1")
    common = {"allocated_milli_cpu": 3000, "request_milli_cpu": 3000}
    expect(
        page_of(figures_of(world, CycleMetrics())),
        root={**common, "deserved_milli_cpu": 0, "real_capacity_milli_cpu": float("inf")},
        eng={**common, "share": 1, "overused": 0, "capacity_milli_cpu": 6000},
        dev={
            **common,
            "deserved_milli_cpu": 1000,
            "share": 3,
            "overused": 1,
            "capacity_milli_cpu": 6000,  # its parent's
            "real_capacity_milli_cpu": 6000,
        },
        ops={"allocated_milli_cpu": 0, "share": 1, "real_capacity_milli_cpu": 6000},
    )


def test_what_is_gone_is_gone_from_the_page_me3():
    world, metrics = proportional(), CycleMetrics()
    before = page_of(figures_of(world, metrics))
    assert any('"b"' in key for key in before)
    assert 'job_share{job_id="wait",job_ns="ns"}' in before
    for number in range(2):
        world.delete(kinds.POD, f"ns/wait-{number}", uid=f"uid-ns/wait-{number}")
    world.delete(kinds.PODGROUP, "ns/wait").delete(kinds.QUEUE, "b")
    metrics.mark_stale()
    after = page_of(figures_of(world, metrics, now=EVERY_S))
    assert not [key for key in after if '"b"' in key or "wait" in key]
    assert 'job_share{job_id="run",job_ns="ns"}' in after


def test_figures_are_taken_when_they_are_due_and_something_changed():
    world, metrics = proportional(), CycleMetrics()
    assert figures_of(world, metrics, now=100.0) is not None
    assert figures_of(world, metrics, now=100.0 + EVERY_S) is None  # nothing happened
    metrics.mark_stale()
    assert figures_of(world, metrics, now=100.0 + EVERY_S / 2) is None
    assert figures_of(world, metrics, now=100.0 + EVERY_S) is not None
    metrics.mark_stale()
    assert figures_of(world, metrics, now=50.0) is not None  # the clock was set back


def test_only_the_jobs_that_changed_last_are_told():
    world = Cluster(PROPORTION).node("n1")
    for number in range(JOBS_MAX + 2):
        world.group(f"g{number}")
    metrics = CycleMetrics()
    figures = figures_of(world, metrics)
    assert figures is not None
    assert len(figures.jobs) == JOBS_MAX
    assert "ns/g1" not in figures.jobs
    world.group("g0", min_member=7)
    metrics.mark_stale()
    figures = figures_of(world, metrics, now=EVERY_S)
    assert figures is not None
    assert figures.jobs["ns/g0"].missing == 7
    assert "ns/g2" not in figures.jobs


def test_waiting_gangs_tell_what_they_lack_and_how_often_they_waited_me2():
    pages, metrics = FigurePages(), Metrics()
    metrics.registry.register(pages)
    figures = figures_of(proportional(), CycleMetrics())
    assert figures is not None
    pages.show(figures)
    for _ in range(3):
        pages.waited(["ns/wait"])
    page = scraped(metrics)
    assert page['unschedule_task_count{job_id="wait"}'] == 2
    assert page['unschedule_task_count{job_id="run"}'] == 0
    assert {key: value for key, value in page.items() if "retry" in key} == {
        'job_retry_counts{job_id="wait"}': 3
    }
    pages.clear()
    assert scraped(metrics) == {}


def test_jobs_tell_when_they_were_made_and_last_placed_me1():
    world = Cluster().node("n1").gang("g", tasks=2)
    now, cycles = CREATED_S + 90.5, CycleMetrics()
    plan = cycle(world, cycles, now=now)
    placed = list(placements(plan, world.cluster_state, now=now))
    assert [(p.job, p.since_s, p.tasks_since_s) for p in placed] == [
        ("ns/g", 90.5, (90.5, 90.5)),
    ]
    pages, metrics = FigurePages(), Metrics()
    metrics.registry.register(pages)
    pages.placed(placed, now=now)
    figures = cycles.sample.figures
    assert figures is not None
    pages.show(figures)
    page = scraped(metrics)
    told = {key: value for key, value in page.items() if key.startswith("e2e_job")}
    labels = '{job_name="g",job_namespace="ns",queue="default"}'
    assert told == {
        f"e2e_job_scheduling_start_time{labels}": CREATED_S,
        f"e2e_job_scheduling_last_time{labels}": CREATED_S + 90,
        f"e2e_job_scheduling_duration{labels}": 90_500,
    }


def test_jobs_of_one_name_in_two_namespaces_share_the_series_that_know_names_only_me2():
    world = Cluster(PROPORTION).node("n1").group("g", min_member=2)
    meta = {"name": "g", "namespace": "other", "uid": "uid-other/g"}
    spec = {"minMember": 3, "queue": "default"}
    world.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": "Inqueue"}})
    page = page_of(figures_of(world, CycleMetrics()))
    assert page['unschedule_task_count{job_id="g"}'] == 5
    shares = [key for key in page if key.startswith("job_share")]
    assert shares == [f'job_share{{job_id="g",job_ns="{ns}"}}' for ns in ("ns", "other")]


@pytest.mark.parametrize("aware", [False, True], ids=["node by node", "topology aware"])
@pytest.mark.parametrize(
    ("running", "attempts", "transactions"),
    [(3, 2, {"preempt": 1}), (2, 1, {})],
    ids=["two may go", "one may go, which is not enough"],
)
def test_preempt_counts_attempts_and_what_it_settles_on_me2(running, attempts, transactions, aware):
    conf = (
        'actions: "preempt"\ntiers:\n- plugins: [{name: priority}, {name: gang}]\n'
        "configurations:\n- name: preempt\n  arguments:\n"
        f"    enableTopologyAwarePreemption: {str(aware).lower()}\n"
    )
    world = Cluster(conf).node("n1", cpu=str(running))
    for name, value in (("low", 1), ("high", 9)):
        world.put(kinds.PRIORITYCLASS, {"metadata": {"name": name, "uid": name}, "value": value})
    world.group("old", phase="Running", priorityClassName="low")  # one has to stay
    world.group("new", min_member=2, priorityClassName="high")
    for number in range(running):
        world.pod(f"old-{number}", "old", cpu="1", node="n1", priority=1)
    for number in range(2):
        world.pod(f"new-{number}", "new", cpu="1", priority=9)
    metrics = CycleMetrics()
    cycle(world, metrics)
    assert metrics.sample.preemption_attempts == attempts
    assert metrics.sample.eviction_transactions == transactions


def test_the_parts_of_a_cycle_are_timed_in_volcanos_units_me1():
    at = iter([10.0, 10.25, 10.5, 11.0, 11.5, 13.5])
    metrics = Metrics()
    timings = Timings(metrics, monotonic=lambda: next(at))
    for part, name in (
        (CyclePart.BEGUN, ""),
        (CyclePart.PLUGIN, "gang"),
        (CyclePart.PLUGIN, "drf"),
        (CyclePart.OPENED, ""),
        (CyclePart.ACTION, "enqueue"),
        (CyclePart.ACTION, "allocate"),
    ):
        timings(part, name)
    sums = {key: value for key, value in scraped(metrics).items() if "_sum" in key}
    assert sums == {
        'plugin_scheduling_latency_milliseconds_sum{OnSession="OnSessionOpen",plugin="gang"}': 250,
        'plugin_scheduling_latency_milliseconds_sum{OnSession="OnSessionOpen",plugin="drf"}': 250,
        "open_session_duration_milliseconds_sum": 1000,
        'action_scheduling_latency_milliseconds_sum{action="enqueue"}': 500,
        'action_scheduling_latency_milliseconds_sum{action="allocate"}': 2000,
    }


def test_a_cycle_tells_each_part_once_in_the_order_of_the_configuration():
    told: list[tuple[CyclePart, str]] = []
    world = Cluster(PROPORTION).node("n1")
    decide(world.cluster_state, world.config, now=0.0, ended=lambda *part: told.append(part))
    assert told == [
        (CyclePart.BEGUN, ""),
        (CyclePart.PLUGIN, "gang"),
        (CyclePart.PLUGIN, "drf"),
        (CyclePart.PLUGIN, "proportion"),
        (CyclePart.OPENED, ""),
        (CyclePart.ACTION, "enqueue"),
    ]


def test_bucket_bounds_rise_by_one_factor():
    assert steps(1, 8, 4) == pytest.approx((1, 2, 4, 8))
    assert steps(1, 5000, 20)[-1] == 5000
