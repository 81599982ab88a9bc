"""What one object of a tenant may cost, in sizes up to what the API server accepts.

Work is counted in lines of Python, so that the law holds or breaks the same on each machine. A line
takes a microsecond at most: `MORE` stands for 50 milliseconds.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.state.cluster_state import BadFact
from services.scheduler.engine.tasks.bounds import NODE_TERMS_MAX, POD_TERMS_MAX
from shared.jobs.flows import in_circles, in_order
from shared.model.schedules import parse
from tests.support.work import lines_run

MORE: Final = 50_000
NODES: Final = 20
NEIGHBOURS: Final = 100
SIZES: Final = (1, 16, POD_TERMS_MAX, POD_TERMS_MAX + 1, NODE_TERMS_MAX, NODE_TERMS_MAX + 1, 5_000)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _pod_term(number: int) -> dict[str, Any]:
    selector = {"matchLabels": {f"key-{number}": "x"}}
    return {"labelSelector": selector, "topologyKey": "zone"}


def _pod_affinity(kind: str, size: int) -> dict[str, Any]:
    return {"affinity": {kind: {_REQUIRED: [_pod_term(n) for n in range(size)]}}}


def _liked_pods(size: int) -> dict[str, Any]:
    terms = [{"weight": 1, "podAffinityTerm": _pod_term(n)} for n in range(size)]
    return {"affinity": {"podAffinity": {_PREFERRED: terms}}}


def _node_affinity(size: int) -> dict[str, Any]:
    terms = [
        {"matchExpressions": [{"key": f"key-{n}", "operator": "NotIn", "values": ["x"]}]}
        for n in range(size)
    ]
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}


def _values(size: int) -> dict[str, Any]:
    values = [f"value-{n}" for n in range(size)]
    one = {"key": "zone", "operator": "NotIn", "values": values}
    terms = [{"matchExpressions": [one]}]
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}


def _spread(hard: str, size: int) -> dict[str, Any]:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": hard,
                "labelSelector": {"matchLabels": {"app": f"value-{n}"}},
            }
            for n in range(size)
        ]
    }


SHAPES: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "pod affinity": lambda size: _pod_affinity("podAffinity", size),
    "pod anti-affinity": lambda size: _pod_affinity("podAntiAffinity", size),
    "preferred pod affinity": _liked_pods,
    "node affinity": _node_affinity,
    "values of node affinity": _values,
    "hard spread": lambda size: _spread("DoNotSchedule", size),
    "soft spread": lambda size: _spread("ScheduleAnyway", size),
    "node selector": lambda size: {"nodeSelector": {f"key-{n}": "x" for n in range(size)}},
    "labels": lambda size: {"labels": {f"key-{n}": "x" for n in range(size)}},
    "annotations": lambda size: {"annotations": {f"key-{n}": "x" * 40 for n in range(size)}},
    "tolerations": lambda size: {
        "tolerations": [{"key": f"key-{n}", "operator": "Exists"} for n in range(size)]
    },
}


def decide_beside(shape: Callable[[int], dict[str, Any]] | None, size: int) -> int:
    """Return the work of folding one more pod and deciding twice, beside pods that run."""
    made = Cluster()
    for number in range(NODES):
        made.node(f"n{number}", cpu="64", labels={"zone": f"z{number % 4}"})
    for number in range(NEIGHBOURS):
        made.pod(f"other-{number}", "others", node=f"n{number % NODES}", labels={"app": "a"})
    made.gang("healthy", tasks=3)

    def work() -> None:
        with suppress(BadFact):
            made.gang("hostile", tasks=1, **(shape(size) if shape is not None else {}))
        for _ in range(2):
            plan = made.decide()
            assert "ns/healthy" in {gang.job for gang in plan.binds}

    return lines_run(work)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.sampled_from(SIZES))
def test_a_decision_with_one_object_costs_at_most_twice_as_much_and_fifty_thousand_lines(
    name: str, size: int
) -> None:
    decide_beside(None, 0)  # what is imported and cached once
    usual = decide_beside(None, 0)
    assert decide_beside(SHAPES[name], size) <= 2 * usual + MORE


@pytest.mark.parametrize(
    ("name", "field", "most"),
    [
        ("pod affinity", "spec.affinity.podAffinity", POD_TERMS_MAX),
        ("pod anti-affinity", "spec.affinity.podAffinity", POD_TERMS_MAX),
        ("hard spread", "spec.topologySpreadConstraints", POD_TERMS_MAX),
        ("node affinity", "spec.affinity.nodeAffinity", NODE_TERMS_MAX),
        ("node selector", "spec.nodeSelector", NODE_TERMS_MAX),
    ],
)
def test_a_pod_that_asks_for_more_is_left_out_with_the_name_of_the_field(name, field, most) -> None:
    made = Cluster().node("n1")
    made.gang("in", tasks=1, **SHAPES[name](most))
    with pytest.raises(BadFact, match=f"{field}.*{most + 1} terms, at most {most}"):
        made.gang("out", tasks=1, **SHAPES[name](most + 1))


def test_a_pod_that_runs_counts_on_its_node_whatever_it_asks_for() -> None:
    made = Cluster().node("n1", cpu="4")
    made.group("g", min_member=1)
    made.pod("runs", "g", node="n1", cpu="3", **SHAPES["pod affinity"](POD_TERMS_MAX + 1))
    made.gang("next", tasks=1, cpu="2")
    assert not made.decide().binds


def test_labels_that_a_pod_asks_about_cost_nothing_per_pod_that_does_not_have_them() -> None:
    def work(pods: int, terms: int) -> int:
        made = Cluster().node("n1", cpu="64")
        made.gang("first", tasks=1, **SHAPES["pod anti-affinity"](1))
        for number in range(pods):
            made.pod(f"other-{number}", "others", labels={"app": "a"})
        return lines_run(lambda: made.gang("asks", tasks=1, **SHAPES["pod anti-affinity"](terms)))

    few, many = work(100, POD_TERMS_MAX), work(400, POD_TERMS_MAX)
    assert many < few + 300 * 20, "a glance at each pod, for all terms together"


GRAPHS: Final[dict[str, Callable[[int], dict[str, tuple[str, ...]]]]] = {
    "a chain": lambda size: {f"{n}": (f"{n + 1}",) if n + 1 < size else () for n in range(size)},
    "a circle": lambda size: {f"{n}": (f"{(n + 1) % size}",) for n in range(size)},
    "one for all": lambda size: {"0": (), **{f"{n}": ("0",) for n in range(1, size)}},
    "all for one": lambda size: {
        "0": tuple(f"{n}" for n in range(1, size)),
        **{f"{n}": () for n in range(1, size)},
    },
    "the same again and again": lambda size: {"0": (), "1": ("0",) * size},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_order_of_a_graph_takes_time_in_proportion_to_its_size(name: str) -> None:
    def work(size: int) -> int:
        needs = GRAPHS[name](size)
        return lines_run(lambda: (in_order(needs), in_circles(needs)))

    assert work(2_000) <= 2.2 * work(1_000) + 100


@pytest.mark.parametrize(
    "text", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", f"{','.join(['*/7'] * 5_000)} 0 30 2 *"]
)
def test_a_schedule_that_never_comes_is_given_up_after_a_bounded_search(text: str) -> None:
    """Nine years of days, each a glance, however long the text is."""
    schedule = parse(text)
    found: list[int | None] = []
    work = lines_run(
        lambda: found.extend((schedule.following(0, 1_700_000_000), schedule.latest(0, 1)))
    )
    assert found == [None, None]
    assert work <= MORE
