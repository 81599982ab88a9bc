"""The vectorised way decides what a plain one decides, task by task, node by node (A02 to A04)."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.decide import run_actions
from shared.api import kinds
from tests.property.plain_allocate import Plain, PlainJob, PlainNode, PlainTask

CONF = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""
GIB = 2**30
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}

nodes = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.integers(1, 6),
            "memory": st.sampled_from([2, 4, 8]),
            "pods": st.sampled_from([2, 4, 20]),
            "disk": st.sampled_from(["", "ssd"]),
            "tainted": st.sampled_from([False, False, True]),
            "cordoned": st.sampled_from([False, False, False, True]),
        }
    ),
    min_size=1,
    max_size=4,
)
tasks = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from([500, 1000, 2000, 0]),
        "memory": st.sampled_from([0, 1, 2]),
        "role": st.sampled_from(["", "ps", "w"]),
        "port": st.sampled_from([0, 0, 0, 80]),
        "disk": st.sampled_from(["", "", "ssd"]),
        "tolerates": st.booleans(),
        "node": st.sampled_from(["", "", "", "n0"]),
    }
)
jobs = st.lists(
    st.fixed_dictionaries(
        {
            "queue": st.sampled_from(["a", "b"]),
            "priority": st.sampled_from([1, 100]),
            "minimum": st.integers(0, 4),
            "tasks": st.lists(tasks, min_size=1, max_size=5),
        }
    ),
    min_size=1,
    max_size=4,
)


leaving = st.lists(
    st.tuples(st.sampled_from([500, 1000]), st.sampled_from(["n0", "n1"])), max_size=3
)
Standing = dict[str, tuple[str, str]]
"""Pod → status and node."""


def plainly(
    node_list: list[dict[str, Any]],
    job_list: list[dict[str, Any]],
    leaving_list: list[tuple[int, str]],
) -> Standing:
    """Decide with plain numbers."""
    there = [
        PlainNode(
            f"n{number}",
            {"cpu": node["cpu"] * 1000, "memory": node["memory"] * GIB, "pods": node["pods"]},
            labels={"disk": node["disk"]},
            tainted=node["tainted"],
            cordoned=node["cordoned"],
        )
        for number, node in enumerate(node_list)
    ]
    for number, (cpu, name) in enumerate(leaving_list):
        old = PlainTask(f"old-{number}", number, cpu, 0)
        for node in there:
            if node.name == name:
                Plain.put(old, node, waiting=False)
                for resource, amount in old.request.items():
                    node.leaving[resource] += amount
    plain = Plain(there, [_plain_job(number, job) for number, job in enumerate(job_list)])
    for job in plain.jobs:
        for task in job.tasks:
            if task.node:
                plain.put(task, there[0], waiting=False)
                task.status = "Running"
    plain.run()
    return {task.name: (task.status, task.node) for job in plain.jobs for task in job.tasks}


def _plain_job(number: int, job: dict[str, Any]) -> PlainJob:
    made = [
        PlainTask(
            f"j{number}-{index}",
            index,
            task["cpu"],
            task["memory"] * GIB,
            role=task["role"],
            port=task["port"],
            selector={"disk": task["disk"]} if task["disk"] else {},
            tolerates=task["tolerates"],
            node=task["node"],
        )
        for index, task in enumerate(job["tasks"])
    ]
    return PlainJob(f"j{number}", job["queue"], job["priority"], job["minimum"], made)


def vectorised(
    node_list: list[dict[str, Any]],
    job_list: list[dict[str, Any]],
    leaving_list: list[tuple[int, str]],
) -> Standing:
    """Decide with the engine."""
    world = Cluster(CONF, queue=False).queue("a").queue("b")
    for value in (1, 100):
        meta = {"name": f"p{value}", "uid": f"p{value}"}
        world.put(kinds.PRIORITYCLASS, {"metadata": meta, "value": value})
    for number, node in enumerate(node_list):
        world.node(
            f"n{number}",
            cpu=str(node["cpu"]),
            memory=f"{node['memory']}Gi",
            pods=str(node["pods"]),
            labels={"disk": node["disk"]},
            taints=[TAINT] if node["tainted"] else [],
            unschedulable=node["cordoned"],
        )
    for number, job in enumerate(job_list):
        world.group(
            f"j{number}",
            queue=job["queue"],
            min_member=job["minimum"],
            priorityClassName=f"p{job['priority']}",
        )
        for index, task in enumerate(job["tasks"]):
            port = [{"containerPort": task["port"], "hostPort": task["port"]}]
            world.pod(
                f"j{number}-{index}",
                f"j{number}",
                cpu=f"{task['cpu']}m" if task["cpu"] else "",
                memory=f"{task['memory']}Gi" if task["memory"] else "",
                role=task["role"],
                node=task["node"],
                ports=port if task["port"] else [],
                nodeSelector={"disk": task["disk"]} if task["disk"] else {},
                tolerations=[{"key": "k", "operator": "Exists"}] if task["tolerates"] else [],
            )
    for number, (cpu, node) in enumerate(leaving_list):
        world.pod(f"old-{number}", cpu=f"{cpu}m", node=node, deleting=True)
    session = world.session()
    try:
        run_actions(session, world.config)
        return {t.name: (t.status.label, t.node) for t in world.cluster_state.tasks() if t.job_key}
    finally:
        session.close()


def _node(pods: int) -> dict[str, Any]:
    plain = {"disk": "", "tainted": False, "cordoned": False}
    return {"cpu": 1, "memory": 2, "pods": pods, **plain}


def _task(cpu: int) -> dict[str, Any]:
    plain = {"role": "", "port": 0, "disk": "", "tolerates": False, "node": ""}
    return {"cpu": cpu, "memory": 0, **plain}


# The last pod asks for nothing, and the one node with room for pods is beyond its CPUs.
@example(
    [_node(2), _node(4), _node(2)],
    [{"queue": "a", "priority": 1, "minimum": 0, "tasks": [*[_task(500)] * 4, _task(0)]}],
    [(500, "n1"), (1000, "n1")],
)
@given(nodes, jobs, leaving)
@settings(max_examples=250, deadline=None)
def test_gangs_go_where_placing_them_one_by_one_in_plain_numbers_sends_them(
    node_list, job_list, leaving_list
):
    """Those that are bound, and those that wait for pods that are leaving."""
    drawn = (node_list, job_list, leaving_list)
    assert vectorised(*drawn) == plainly(*drawn)
