"""mypy --strict accepts a right registration of a plugin's function and refuses a wrong one."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "scheduler-plugin" / "running_limit.py"
HEAD = """\
import numpy as np

from pumice.plugins import (
    Cluster, CodeArray, EvictionContext, FloatArray, Hooks, Job, NodeRows, Opinion, Plugin, Queue,
    Reason, Task, TaskClass, Vote,
)

def of_job(job: Job) -> int: return job.priority
def of_queue(queue: Queue) -> int: return queue.weight
def opinion(job: Job) -> Opinion: return Opinion(Vote.PERMIT)
def codes(shape: TaskClass, rows: NodeRows) -> CodeArray: return np.zeros(len(rows), np.uint8)
def score(shape: TaskClass, rows: NodeRows) -> FloatArray: return np.zeros(len(rows))
def nothing(job: Job) -> None: return None

class Misnamed:
    name = "misnamed"
    def contribute(self, cluster: Cluster, hooks: Hooks) -> None: ...

def register(hooks: Hooks, cluster: Cluster) -> None:
"""
RIGHT = """\
hooks.job_order(of_job)
hooks.job_order(lambda job: (job.priority, -job.ready_count))
hooks.queue_order(of_queue)
hooks.job_enqueueable(opinion)
hooks.job_enqueued(nothing)
hooks.predicate(codes, reasons=[Reason("full")], static=True)
hooks.node_score(score)
hooks.node_rank(lambda shape, rows: rows.index, weight=2)
hooks.preemptable(lambda by, offered: [t for t in offered if t.priority < by.priority])
hooks.evictable(lambda context, offered: offered if context.job.queue else None)
hooks.trait("queue", lambda task: task.job_key)
hooks.queue_room(lambda queue: queue.deserved - np.zeros(3))
"""
WRONG = """\
hooks.job_order(of_queue)
hooks.queue_order(of_job)
hooks.job_order(nothing)
hooks.job_order(lambda queue: queue.weight)
hooks.job_enqueueable(of_job)
hooks.job_enqueueable(lambda job: True)
hooks.job_ready(lambda job: job.is_ready and "yes")
hooks.job_pipelined(lambda job: job.is_ready)
hooks.overused(of_queue)
hooks.predicate(codes)
hooks.predicate(score, reasons=[])
hooks.predicate(codes, reasons=["full"])
hooks.node_score(codes)
hooks.node_rank(lambda shape, rows: rows.index)
hooks.preemptable(lambda preemptor, offered: True)
hooks.evictable(lambda context, offered: context.queue)
hooks.trait(lambda task: task.job_key)
hooks.no_such_point(of_job)
cluster.jobs[0].phase = 3
cluster.nodes.used = cluster.nodes.allocatable
plugin: Plugin = Misnamed()
"""


@pytest.mark.timeout(300)  # mypy reads numpy, the first time
def test_mypy_refuses_wrong_registrations_and_no_right_one(cache):
    folder = cache.mkdir("mypy-of-plugins")  # one path for mypy, which keeps its errors by it
    lines = [f"    {line}" for line in (RIGHT + WRONG).splitlines()]
    module = folder / "registrations.py"
    module.write_text(HEAD + "\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--no-pretty"]
    checked = subprocess.run(
        [*command, f"--cache-dir={folder}", str(module), str(EXAMPLE)],
        cwd=EXAMPLE.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    first = len(HEAD.splitlines()) + 1
    refused = {
        int(line.split(":")[1]) - first
        for line in checked.stdout.splitlines()
        if line.partition(":")[0].endswith(module.name) and ": error: " in line
    }
    right = len(RIGHT.splitlines())
    wrong = WRONG.splitlines()
    assert refused & set(range(right)) == set(), checked.stdout
    assert [line for at, line in enumerate(wrong) if at + right not in refused] == []
    assert EXAMPLE.name not in checked.stdout
    assert all(index >= right for index in refused), checked.stdout
