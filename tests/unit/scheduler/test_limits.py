"""Plugin `limits`: users and queues use no more than stated, and are told which limit they meet."""

from typing import Any

import pytest

from pumice.testing import Cluster, binds_of
from services.scheduler.engine.plan import Plan
from services.scheduler.policy.arguments import BadArgument
from services.scheduler.policy.plugins.limits import LimitsPlugin
from shared.api import keys, kinds

CONF = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - {name: gang}
  - {name: limits, arguments: {limits: %s}}
- plugins:
  - {name: predicates}
"""


def cluster(*limits: dict[str, Any]) -> Cluster:
    world = Cluster(CONF % str(list(limits)).replace("'", '"'), queue=False)
    world.node("n", cpu="32", nvidia_com__gpu="16")
    world.queue("root").queue("team", parent="root")
    return world.queue("research", parent="team").queue("other", parent="team")


def job(
    world: Cluster,
    name: str,
    user: str,
    *,
    tasks: int = 1,
    least: int = 0,
    cpu: str = "1",
    gpus: int = 0,
    queue: str = "research",
    phase: str = "Inqueue",
    node: str = "",
    namespace: str = "ns",
) -> None:
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}/{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {keys.USER: user} if user else {},
    }
    amounts = {**({"cpu": cpu} if cpu else {}), **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    spec = {"minMember": least or tasks, "queue": queue, "minResources": _times(amounts, tasks)}
    world.put(kinds.PODGROUP, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
    for number in range(tasks):
        more = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        where = {"namespace": namespace}
        world.pod(f"{name}-{number}", name, cpu=cpu, node=node, requests=more, metadata=where)


def _times(amounts: dict[str, str], count: int) -> dict[str, str]:
    return {name: str(int(amount) * count) for name, amount in amounts.items()}


def started(plan: Plan) -> set[str]:
    return {pod.rpartition("-")[0] for pod in binds_of(plan)}


def why(plan: Plan, name: str) -> tuple[str, str]:
    (found,) = (e for e in plan.explanations if e.job == f"ns/{name}")
    return found.gate, found.message


GPUS = {"queue": "research", "users": ["*"], "resources": {"nvidia.com/gpu": 8}}


def test_a_user_at_a_limit_waits_and_is_told_which_one_it_is() -> None:
    world = cluster(GPUS)
    job(world, "runs", "ann", gpus=8, node="n", phase="Running")
    job(world, "waits", "ann", gpus=2)
    job(world, "theirs", "bob", gpus=2)
    plan = world.step()
    assert started(plan) == {"theirs"}
    assert why(plan, "waits") == (
        "limits",
        "user ann holds 8 of 8 nvidia.com/gpu in queue research; the job needs 2 nvidia.com/gpu",
    )


def test_a_gang_that_exceeds_a_limit_as_a_whole_is_not_begun() -> None:
    world = cluster(GPUS)
    job(world, "gang", "ann", tasks=5, gpus=2)
    plan = world.step()
    assert started(plan) == set()
    assert why(plan, "gang")[1].endswith("holds 0 of 8 nvidia.com/gpu in queue research; "
                                         "the job needs 10 nvidia.com/gpu")  # fmt: skip


def test_a_job_gets_as_many_pods_as_a_limit_leaves() -> None:
    world = cluster(GPUS)
    job(world, "elastic", "ann", tasks=6, least=1, gpus=2)
    assert len(binds_of(world.step())) == 4


def test_a_limit_of_a_queue_holds_for_its_subtree_and_all_users_together() -> None:
    world = cluster({"queue": "team", "resources": {"cpu": 4}})
    job(world, "runs", "ann", cpu="3", node="n", phase="Running")
    job(world, "waits", "bob", cpu="2", queue="other")
    job(world, "small", "bob", cpu="1", queue="other")
    plan = world.step()
    assert started(plan) == {"small"}
    assert why(plan, "waits")[1] == (
        "all users together hold 4 of 4 cpu in queue team; the job needs 2 cpu"
    )


def test_a_limit_that_names_a_user_comes_before_one_of_every_user() -> None:
    world = cluster({**GPUS, "users": ["ann"], "resources": {"nvidia.com/gpu": 12}}, GPUS)
    job(world, "ann", "ann", gpus=12)
    job(world, "bob", "bob", gpus=9)
    assert started(world.step()) == {"ann"}


def test_jobs_without_a_user_count_as_one_user() -> None:
    world = cluster({"users": ["*"], "pods": 1})
    job(world, "first", "")
    job(world, "second", "")
    plan = world.step()
    assert started(plan) == {"first"}
    assert why(plan, "second")[1] == (
        "user unknown holds 1 of 1 pods in queue root; the job needs 1 pods"
    )


def test_a_limit_holds_for_each_namespace_by_itself() -> None:
    world = cluster({"namespaces": ["*"], "pods": 1}, {"namespaces": ["b"], "pods": 2})
    for namespace in ("a", "b"):
        job(world, f"{namespace}-runs", "ann", node="n", phase="Running", namespace=namespace)
        job(world, f"{namespace}-waits", "bob", namespace=namespace)
    plan = world.step()
    assert started(plan) == set()
    waits = next(e for e in plan.explanations if e.job == "b/b-waits")
    assert waits.message == "namespace b holds 1 of 1 pods in queue root; the job needs 1 pods"


def test_a_limit_of_users_and_namespaces_holds_for_each_user_in_each_namespace() -> None:
    world = cluster({"users": ["*"], "namespaces": ["a"], "pods": 1})
    job(world, "first", "ann", namespace="a")
    job(world, "second", "ann", namespace="a")
    job(world, "theirs", "bob", namespace="a")
    job(world, "elsewhere", "ann", namespace="b")
    plan = world.step()
    assert started(plan) == {"first", "theirs", "elsewhere"}
    waits = next(e for e in plan.explanations if e.job == "a/second")
    assert waits.message.startswith("user ann in namespace a holds 1 of 1 pods")


def test_pods_without_requests_count() -> None:
    world = cluster({"users": ["*"], "pods": 2})
    job(world, "idle", "ann", tasks=4, least=1, cpu="")
    assert len(binds_of(world.step())) == 2


def test_a_number_of_jobs_is_a_limit() -> None:
    world = cluster({"users": ["*"], "jobs": 1})
    job(world, "first", "ann", tasks=2)
    job(world, "second", "ann")
    plan = world.step()
    assert started(plan) == {"first"}
    assert why(plan, "second") == (
        "limits",
        "user ann holds 1 of 1 jobs in queue root; the job needs 1 job",
    )


def test_a_job_that_runs_may_grow_although_no_further_job_may_run() -> None:
    world = cluster({"users": ["*"], "jobs": 1})
    job(world, "grows", "ann", tasks=1, node="n", phase="Running")
    world.pod("grows-1", "grows", cpu="1")
    assert set(binds_of(world.step())) == {"grows-1"}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"jobs": 1}, "user ann holds 1 of 1 jobs in queue root; the job needs 1 job"),
        ({"pods": 2}, "user ann holds 2 of 2 pods in queue root; the job needs 2 pods"),
        (
            {"resources": {"cpu": "3500m"}},
            "user ann holds 2 of 3.5 cpu in queue root; the job needs 2 cpu",
        ),
    ],
)
def test_a_job_that_would_exceed_a_limit_does_not_enter_its_queue(
    limit: dict[str, Any], message: str
) -> None:
    world = cluster({"users": ["*"], **limit})
    job(world, "first", "ann", tasks=2, phase="Pending")
    job(world, "second", "ann", tasks=2, phase="Pending")
    assert why(world.step(), "second") == ("enqueue", message)


def test_memory_is_shown_as_a_quantity() -> None:
    world = Cluster(CONF % '[{users: ["*"], resources: {memory: 2Gi}}]')
    world.node("n", memory="64Gi")
    meta = {"name": "g", "namespace": "ns", "uid": "uid-ns/g", "annotations": {keys.USER: "ann"}}
    body = {"metadata": meta, "spec": {"minMember": 1, "queue": "default"}}
    world.put(kinds.PODGROUP, {**body, "status": {"phase": "Inqueue"}})
    world.pod("g-0", "g", memory="3Gi")
    assert "holds 0 of 2Gi memory" in why(world.step(), "g")[1]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ([{"que": "a"}], "unknown field"),
        ([{"pods": "many"}], "pods"),
        ([{"resources": {"cpu": "much"}}], r"limits\[0\].resources.cpu: 'much' is no amount"),
        ("x", "limits: expected array"),
    ],
)
def test_a_limit_that_cannot_be_read_is_refused(limits: Any, said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        LimitsPlugin({"limits": limits})
