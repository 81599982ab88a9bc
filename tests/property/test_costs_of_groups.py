"""What one PodGroup, disruption budget or Numatopology may cost the scheduler.

Work is counted in lines of Python, as in `test_costs_of_objects`.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from pumice.testing import Cluster
from services.scheduler.engine.state.cluster_state import BadFact
from shared.api import kinds
from shared.jobs.pod_terms import EXPRESSIONS_MAX, PARTITIONED_TASKS_MAX, SUBGROUP_TERMS_MAX
from tests.support.laws import lines_run, many_expressions
from tests.unit.admission.asking import ask, paths, sparse_job, task

MORE: Final = 50_000
NODES: Final = 20


def _policy(number: int, **more: Any) -> dict[str, Any]:
    selected = {"labelSelector": {"matchLabels": {"q": f"{number}"}}}
    return {"name": f"p{number}", "subGroupSize": 1, "matchLabelKeys": ["p"], **selected, **more}


_ANYONE: Final[dict[str, Any]] = {"labelSelector": None}
GROUPS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "minima of roles": lambda size: {"minTaskMember": {f"r{n}": 1 for n in range(size)}},
    "minima of 0": lambda size: {"minTaskMember": {f"r{n}": 0 for n in range(size)}},
    "minima of roles that add up": lambda size: {
        "minMember": size,
        "minTaskMember": {f"r{n}": 1 for n in range(size)},
    },
    "subgroups": lambda _: {"subGroupPolicy": [_policy(0, **_ANYONE)]},
    "subgroups with a topology": lambda _: {
        "subGroupPolicy": [
            _policy(0, **_ANYONE, networkTopology={"mode": "hard", "highestTierAllowed": 1})
        ]
    },
    "subgroups that must be there": lambda size: {
        "subGroupPolicy": [_policy(0, **_ANYONE, minSubGroups=size)]
    },
    "a topology": lambda _: {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
    "minResources": lambda size: {"minResources": {f"example.com/r{n}": "1" for n in range(size)}},
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_decided_on_in_time_in_proportion_to_its_pods(name: str) -> None:
    def work(size: int) -> int:
        made = Cluster()
        for number in range(NODES):
            made.node(f"n{number}", cpu="64")
        made.group("g", **{"min_member": 1, **_renamed(GROUPS[name](size))})
        for number in range(size):
            labels = {"labels": {"p": f"{number}"}}
            made.pod(f"g-{number}", "g", cpu="10m", role=f"r{number}", metadata=labels)
        return lines_run(lambda: made.decide().binds)

    work(4)
    assert work(400) <= 2.4 * work(200) + MORE


def _renamed(spec: dict[str, Any]) -> dict[str, Any]:
    return {"min_member" if key == "minMember" else key: value for key, value in spec.items()}


def test_policies_of_subgroups_are_looked_at_once_for_each_pod() -> None:
    made = Cluster().node("n1", cpu="64")
    many = SUBGROUP_TERMS_MAX // 3
    made.group("g", subGroupPolicy=[_policy(n) for n in range(many)])
    for number in range(50):
        made.pod(f"g-{number}", "g", cpu="64", metadata={"labels": {"p": f"{number}"}})
    first = lines_run(made.decide)
    made.pod("g-50", "g", cpu="64", metadata={"labels": {"p": "50"}})
    assert lines_run(made.decide) < first / 5
    with pytest.raises(BadFact, match=r"spec\.subGroupPolicy: \d+ terms, at most 1024"):
        made.group("too-many", subGroupPolicy=[_policy(n) for n in range(many + 1)])
    policy = _policy(0, labelSelector=many_expressions(SUBGROUP_TERMS_MAX))
    with pytest.raises(BadFact, match=r"spec\.subGroupPolicy"):
        made.group("too-long", subGroupPolicy=[policy])


def test_a_job_with_too_many_tasks_that_have_partitions_is_refused() -> None:
    def refused(size: int) -> list[str]:
        policy = {"totalPartitions": 1, "partitionSize": 1}
        tasks = [task(f"t{n}", 1, partitionPolicy=policy) for n in range(size)]
        return paths(ask("/jobs/validate", sparse_job(*tasks, schedulerName="volcano")))

    assert refused(PARTITIONED_TASKS_MAX) == []
    assert refused(PARTITIONED_TASKS_MAX + 1) == ["spec.tasks"]


def test_a_disruption_budget_with_more_expressions_than_are_read_is_left_out() -> None:
    def budget(size: int) -> dict[str, Any]:
        meta = {"name": "b", "namespace": "ns", "uid": "b"}
        return {"metadata": meta, "spec": {"selector": many_expressions(size)}}

    made = Cluster().put(kinds.PDB, budget(EXPRESSIONS_MAX))
    with pytest.raises(BadFact, match=r"spec\.selector: 257 expressions"):
        made.put(kinds.PDB, budget(EXPRESSIONS_MAX + 1))


def test_containers_with_cpus_of_their_own_are_given_them_in_bounded_time() -> None:
    """On a node with eight NUMA nodes, which have 255 sets."""
    conf = "actions: allocate\ntiers:\n- plugins: [{name: gang}, {name: numa-aware}]\n"
    places = {str(n): {"numa": n // 16, "socket": n // 64, "core": n} for n in range(128)}

    def work(containers: int) -> int:
        made = Cluster(conf).node("n1", cpu="100000", memory="100000Gi")
        spec = {
            "policies": {
                "CPUManagerPolicy": "static",
                "TopologyManagerPolicy": "best-effort",
            },
            "numares": {"cpu": {"allocatable": "0-127", "capacity": 128}},
            "cpuDetail": places,
        }
        made.put(kinds.NUMATOPOLOGY, {"metadata": {"name": "n1", "uid": "n1"}, "spec": spec})
        made.group("g")
        stated = {"cpu": "3", "memory": "1Mi"}
        each = {"resources": {"requests": stated, "limits": stated}}
        policy = {"annotations": {"volcano.sh/numa-topology-policy": "best-effort"}}
        listed = [{"name": f"c{n}", **each} for n in range(containers)]
        made.pod("g-0", "g", metadata=policy, containers=listed)
        return lines_run(made.decide)

    assert work(32) <= 10 * MORE
    assert work(2_000) <= 2 * work(32) + 10 * MORE
