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
from shared.api import kinds
from shared.jobs.flows import in_circles, in_order
from shared.jobs.pod_terms import (
    EXPRESSIONS_MAX,
    NODE_TERMS_MAX,
    POD_TERMS_MAX,
)
from shared.model.schedules import parse
from tests.support.laws import lines_run, many_expressions
from tests.unit.admission.asking import Json, ask, paths, sparse_job, task, template
from tests.unit.scheduler.devices import DRIVER, device, device_class, slice_of

MORE: Final = 50_000
NODES: Final = 20
NEIGHBOURS: Final = 100
SIZES: Final = (1, 16, POD_TERMS_MAX, POD_TERMS_MAX + 1, NODE_TERMS_MAX, NODE_TERMS_MAX + 1, 5_000)
"""The bound of expressions is that of terms of nodes."""
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


def _one_term(**term: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {_REQUIRED: [{"topologyKey": "zone", **term}]}}}


def _one_expression(size: int) -> dict[str, Any]:
    values = [f"value-{n}" for n in range(size)]
    return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]}


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
    "expressions of a term": lambda size: _one_term(labelSelector=many_expressions(size)),
    "values of a term": lambda size: _one_term(labelSelector=_one_expression(size)),
    "namespaces of a term": lambda size: _one_term(
        labelSelector=many_expressions(1), namespaces=[f"ns-{n}" for n in range(size)]
    ),
    "expressions about namespaces": lambda size: _one_term(
        labelSelector=many_expressions(1), namespaceSelector=many_expressions(size)
    ),
    "keys of a term": lambda size: _one_term(
        labelSelector=many_expressions(1), matchLabelKeys=[f"key-{n}" for n in range(size)]
    ),
    "expressions of a constraint": lambda size: {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": many_expressions(size),
            }
        ]
    },
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
        ("expressions of a term", "spec.affinity.podAffinity", EXPRESSIONS_MAX),
        ("expressions about namespaces", "spec.affinity.podAffinity", EXPRESSIONS_MAX - 1),
        ("expressions of a constraint", "spec.topologySpreadConstraints", EXPRESSIONS_MAX),
    ],
)
def test_a_pod_that_asks_for_more_is_left_out_with_the_name_of_the_field(name, field, most) -> None:
    made = Cluster().node("n1")
    made.gang("in", tasks=1, **SHAPES[name](most))
    with pytest.raises(BadFact, match=rf"{field}.*: \d+ (terms|expressions of).*, at most \d+"):
        made.gang("out", tasks=1, **SHAPES[name](most + 1))


@pytest.mark.parametrize(
    ("name", "field", "most"),
    [
        ("pod affinity", "affinity.podAffinity, podAntiAffinity", POD_TERMS_MAX),
        ("soft spread", "topologySpreadConstraints", POD_TERMS_MAX),
        ("values of node affinity", "", 10_000),
        ("node affinity", "affinity.nodeAffinity", NODE_TERMS_MAX),
        ("node selector", "nodeSelector", NODE_TERMS_MAX),
        ("expressions of a constraint", "topologySpreadConstraints", EXPRESSIONS_MAX),
    ],
)
def test_a_job_whose_pods_would_ask_for_more_is_refused_by_field_when_it_is_ours(
    name, field, most
) -> None:
    def refused(size: int, scheduler: str) -> list[str]:
        job = template(**SHAPES[name](size))
        job["spec"]["schedulerName"] = scheduler
        return paths(ask("/jobs/validate", job))

    assert refused(most, "volcano") == []
    assert refused(most + 1, "volcano") == (
        [f"spec.tasks[0].template.spec.{field}"] if field else []
    )
    assert refused(most + 1, "default-scheduler") == []


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


_AMOUNTS: Final = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}


def _names(size: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}-{number}" for number in range(size)]


def _containers(size: int) -> list[Json]:
    return [{"name": n, "image": "b", "resources": _AMOUNTS} for n in _names(size)]


JOBS: Final[dict[str, Callable[[int], Json]]] = {
    "tasks": lambda size: sparse_job(*map(task, _names(size))),
    "tasks that wait for one another": lambda size: sparse_job(
        *(
            task(n, dependsOn={"name": _names(size)[at - 1 :][:1]})
            for at, n in enumerate(_names(size))
        )
    ),
    "tasks before a circle": lambda size: sparse_job(
        *map(task, _names(size)), *(task(n, dependsOn={"name": [n]}) for n in _names(size, "c"))
    ),
    "needs that no task has": lambda size: sparse_job(task("a", dependsOn={"name": _names(size)})),
    "exit codes": lambda size: sparse_job(
        policies=[{"action": "AbortJob", "exitCode": n + 1} for n in range(size)]
    ),
    "events of a policy": lambda size: sparse_job(
        policies=[{"action": "AbortJob", "events": _names(size)}]
    ),
    "minimum per task of partitions": lambda size: sparse_job(
        *(
            task(n, 2, minAvailable=1, partitionPolicy={"totalPartitions": 2, "partitionSize": 1})
            for n in _names(size)
        )
    ),
    "variables": lambda size: template(
        containers=[{"name": "m", "image": "b", "env": [{"name": n} for n in _names(size)]}]
    ),
    "arguments": lambda size: template(
        containers=[{"name": "m", "image": "b", "args": _names(size)}]
    ),
    "containers": lambda size: template(containers=_containers(size)),
    "containers within a pod's own amounts": lambda size: template(
        containers=_containers(size),
        initContainers=[{**each, "name": f"i{each['name']}"} for each in _containers(size)],
        resources={"requests": {f"example.com/{n}": "1" for n in _names(size)}},
    ),
    "volumes and mounts": lambda size: template(
        volumes=[{"name": n} for n in _names(size)],
        containers=[
            {
                "name": "m",
                "image": "b",
                "volumeMounts": [{"name": n, "mountPath": f"/{n}"} for n in _names(size)],
            }
        ],
    ),
    "volumes of the job": lambda size: sparse_job(
        volumes=[{"mountPath": f"/{n}", "volumeClaimName": n} for n in _names(size)]
    ),
    "plugins that do not exist": lambda size: sparse_job(plugins={n: [] for n in _names(size)}),
    "arguments of plugins": lambda size: sparse_job(
        plugins={"svc": _names(size), "pytorch": _names(size, "--a"), "mpi": _names(size, "--b")}
    ),
    "tasks under plugins": lambda size: sparse_job(
        *map(task, _names(size)), plugins={"svc": [], "env": [], "pytorch": [], "mpi": []}
    ),
    "tolerations": lambda size: template(tolerations=[{"key": n} for n in _names(size)]),
    "unknown fields": lambda size: template(**dict.fromkeys(_names(size), 1)),
}


@pytest.mark.parametrize("name", JOBS)
def test_admission_takes_time_in_proportion_to_the_size_of_a_job(name: str) -> None:
    def work(size: int) -> int:
        job = JOBS[name](size)
        return lines_run(lambda: (ask("/jobs/mutate", job), ask("/jobs/validate", job)))

    work(4)  # what is imported and cached once
    assert work(400) <= 2.3 * work(200) + 1_000


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


def _with_devices(devices: int) -> Cluster:
    made = Cluster().put(kinds.DEVICECLASS, device_class("gpu"))
    for number in range(NODES):
        name = f"n{number}"
        listed = [device(f"d{n}", parity=n % 2) for n in range(devices)]
        made.node(name, cpu="64").put(kinds.RESOURCESLICE, slice_of(name, listed, node=name))
    return made


@pytest.mark.parametrize(("requests", "devices"), [(1, 128), (4, 64), (4, 128)])
def test_a_search_for_devices_takes_a_bounded_part_of_a_cycle(requests: int, devices: int) -> None:
    """A claim that no devices meet, which shows only when all combinations have been tried."""
    made = _with_devices(devices)
    made.gang("healthy", tasks=3)
    usual = lines_run(made.decide)
    asked = [
        {"name": f"r{n}", "exactly": {"deviceClassName": "gpu", "count": 8}}
        for n in range(requests)
    ]
    unlike = [{"distinctAttribute": f"{DRIVER}/parity"}]
    meta = {"name": "c", "namespace": "ns", "uid": "c"}
    spec = {"devices": {"requests": asked, "constraints": unlike}}
    made.put(kinds.RESOURCECLAIM, {"metadata": meta, "spec": spec})
    made.gang("hostile", tasks=1, resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    for _ in range(3):
        work = lines_run(lambda: made.decide() and None)
        assert work <= 2 * usual + 20 * MORE


def _claimant(made: Cluster, namespace: str, name: str, count: int, **devices: Any) -> None:
    """Add a PodGroup of one pod, and its claim for so many devices."""
    head = {"metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}}
    asked = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    made.put(kinds.RESOURCECLAIM, {**head, "spec": {"devices": {"requests": [asked], **devices}}})
    made.put(kinds.PODGROUP, {**head, "spec": {"minMember": 1}, "status": {"phase": "Inqueue"}})
    head["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
    using = [{"name": "c", "resourceClaimName": name}]
    containers = [{"name": "m", "resources": {"requests": {"cpu": "1"}}}]
    spec = {"schedulerName": "volcano", "containers": containers, "resourceClaims": using}
    made.put(kinds.POD, {**head, "spec": spec, "status": {"phase": "Pending"}})


def test_claims_of_ever_new_shapes_take_no_devices_from_other_namespaces() -> None:
    """Each cycle meets ten more for which all combinations are tried, before the plain one."""
    made = _with_devices(64)
    _claimant(made, "healthy", "warm", 1)
    usual = lines_run(made.step)
    shapes = 0
    for cycle in range(4):
        for _ in range(10):
            shapes += 1
            unlike = [{"distinctAttribute": f"{DRIVER}/parity", "requests": ["r"]}] * 2
            _claimant(made, "a-hostile", f"c{shapes}", 3 + shapes, constraints=unlike)
        if cycle == 2:
            _claimant(made, "healthy", "plain", 7)
        bound: set[str] = set()
        work = lines_run(lambda: bound.update(gang.job for gang in made.step().binds))  # noqa: B023
        assert work <= 2 * usual + 80 * MORE
    assert bound == {"healthy/plain"}
