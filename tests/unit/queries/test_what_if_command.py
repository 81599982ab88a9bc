"""`pumice what-if`: the question that it makes of a file and flags, and how it tells the answer."""

import json

import pytest
import yaml

from pumice.queries import text
from shared.api.meta import ObjectMeta
from shared.api.visibility import (
    EvictedPod,
    Explanation,
    Holder,
    LosingJob,
    NeededNodes,
    ObjectRef,
    PendingJob,
    QueueResource,
    QueueTree,
    ResourceShortage,
    WhatIfStatus,
)
from tests.support.answers import ROOT, AnswersTransport
from tests.unit.queries.cluster import JOBS, WAITS
from tests.unit.queries.conftest import Run

WHAT_IF = """\
starts now
  places    3 of worker on node-1
            1 of worker on node-2
  evicts    team/big-0
  delays    default/train by 1m30s
            team/other not known by how much
  and 2 in namespaces that you may not see
"""
JOB = """\
kind: Job
metadata: {name: big, namespace: team}
spec: {minAvailable: 4}
"""


def test_what_if_asks_for_the_job_of_a_file(run: Run, way: AnswersTransport, tmp_path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    assert run("what-if", "-f", str(tmp_path / "job.yaml")) == (0, WHAT_IF, "")
    (request,) = way.asked
    assert (request.method, request.path) == ("POST", f"{ROOT}/namespaces/team/whatifs")
    assert ("fieldValidation", "Strict") in request.query
    assert json.loads(request.body)["spec"] == {"job": yaml.safe_load(JOB)}


def test_the_answer_of_what_if_has_no_name(run: Run, way: AnswersTransport) -> None:
    code, out, err = run("what-if", "--drain", "n1", "-o", "name")
    assert (code, out, way.asked) == (2, "", [])
    assert "invalid choice: 'name'" in err


def test_what_if_asks_for_nodes_that_come_and_go(run: Run, way: AnswersTransport) -> None:
    run("what-if", "--drain", "n1", "--drain", "n2", "--add-nodes", "3", "--like", "n4")
    assert json.loads(way.asked[0].body)["spec"] == {
        "drainNodes": ["n1", "n2"],
        "addNodes": [{"count": 3, "like": "n4"}],
    }


def test_what_if_asks_how_many_nodes_of_some_shapes_a_job_needs(
    run: Run, way: AnswersTransport, tmp_path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    shapes = [{"kind": "Node", "metadata": {"name": name}} for name in ("cpu-16", "gpu-8")]
    (tmp_path / "shapes.yaml").write_text(yaml.safe_dump_all(shapes))
    way.answers.verdict = WhatIfStatus(
        starts_now=True,
        needed_nodes=(NeededNodes(shape="cpu-16", count=1), NeededNodes(shape="gpu-8", count=12)),
    )
    words = ("-f", str(tmp_path / "job.yaml"), "--shapes", str(tmp_path / "shapes.yaml"))
    told = "starts now\n  nodes     1 cpu-16, 12 gpu-8 more\n"
    assert run("what-if", *words) == (0, told, "")
    assert json.loads(way.asked[0].body)["spec"]["shapes"] == shapes


def test_what_if_asks_for_a_queue_of_which_some_changes(run: Run, way: AnswersTransport) -> None:
    words = ("--weight", "3", "--capability", "cpu=40,nvidia.com/gpu=8", "--deserved", "cpu=20")
    run("what-if", "--change-queue", "research", *words)
    assert json.loads(way.asked[0].body)["spec"] == {
        "changeQueue": {
            "name": "research",
            "weight": 3,
            "capability": {"cpu": "40", "nvidia.com/gpu": "8"},
            "deserved": {"cpu": "20"},
        }
    }


def test_what_if_ends_with_3_if_the_job_would_wait(
    run: Run, way: AnswersTransport, tmp_path
) -> None:
    way.answers.verdict = WAITS
    (tmp_path / "job.yaml").write_text(JOB)
    code, out, _ = run("what-if", "-f", str(tmp_path / "job.yaml"))
    assert code == 3
    assert out == (
        "does not start now: stopped at the gate queue: queue research is full\n"
        "  short     nvidia.com/gpu: 16 asked, 4 free\n"
        "  start     in 12m (half of the forecasts), in 2h30m at the latest (nine of ten); "
        "by how long similar jobs ran\n"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give a job with -f FILE"),
        (("--add-nodes", "3"), "goes with --like"),
        (("--add-nodes", "0", "--like", "n1"), "goes with --like"),
        (("--add-nodes", "-3", "--like", "n1"), "--add-nodes -3"),
        (("--change-queue", "research"), "goes with --weight, --capability"),
        (("--weight", "3"), "--change-queue QUEUE goes with"),
        (("--change-queue", "q", "--guarantee", "cpu=1,gpu"), "--guarantee cpu=1,gpu: 'gpu' is no"),
        (("--shapes", "nodes.yaml"), "--shapes FILE goes with -f FILE of a Job"),
        (("-f", "jobs.yaml", "--shapes", "pod.yaml"), "holds more than one Job"),
        (("--shapes", "pod.yaml"), "pod.yaml: kind Pod is no Node"),
        (("--shapes", "empty.yaml"), "empty.yaml holds no Node"),
        (("-f", "none-such.yaml"), "none-such.yaml: no such file"),
        (("-f", "bad.yaml"), "bad.yaml: while parsing"),
        (("-f", "text.yaml"), "holds no object"),
        (("-f", "pod.yaml"), "kind Pod is no Job, Queue or WhatIf"),
        (("-f", "jobs.yaml"), "jobs.yaml holds more than one Job"),
        (("-f", "asked.yaml"), "asked.yaml holds more than one Job"),
        (("-f", "queues.yaml"), "queues.yaml holds more than one Queue"),
    ],
)
def test_a_question_that_is_none_is_wrong_usage(
    run: Run, words: tuple[str, ...], says: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.yaml").write_text("kind: Node")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "text.yaml").write_text("text")
    (tmp_path / "pod.yaml").write_text("kind: Pod")
    (tmp_path / "jobs.yaml").write_text("kind: Job\n---\nkind: Job")
    (tmp_path / "asked.yaml").write_text("kind: WhatIf\nspec: {job: {}}\n---\nkind: Job")
    (tmp_path / "queues.yaml").write_text("kind: Queue\n---\nkind: Queue\n---\nkind: Job")
    code, out, err = run("what-if", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_other_nodes_alone_tell_which_jobs_they_would_start(
    run: Run, way: AnswersTransport
) -> None:
    way.answers.verdict = WhatIfStatus(starts_now=False, starting=(JOBS[0].owner,))
    words = ("what-if", "--add-nodes", "1", "--like", "node-1")
    told = "1 of the jobs that wait would start\n  starts    default/train\n"
    assert run(*words) == (0, told, "")
    way.answers.verdict = WhatIfStatus(starts_now=False)
    assert run(*words) == (0, "no job would start\n", "")


def test_what_if_names_the_jobs_that_lose_pods_with_a_node(run: Run, way: AnswersTransport) -> None:
    losing = (
        LosingJob(job=JOBS[0].owner, pods=2, stops=True),
        LosingJob(job=JOBS[0].owner, pods=1),
    )
    way.answers.verdict = WhatIfStatus(
        starts_now=False, drained_pods=5, unplaced_pods=3, losing=losing
    )
    assert run("what-if", "--drain", "n1")[1] == (
        "no job would start\n"
        "  drained   5 pods move; 3 find no place\n"
        "  loses     default/train 2 pods, fewer are left than it needs\n"
        "            default/train 1 pod\n"
    )


def test_what_if_tells_how_much_more_there_is_than_it_names(
    run: Run, way: AnswersTransport
) -> None:
    more = {"evictions": 120, "starting": 3}
    way.answers.verdict = WhatIfStatus(
        starts_now=False,
        evictions=(EvictedPod(namespace="team", name="big-0"),),
        starting=(JOBS[0].owner,),
        remaining=more,
    )
    assert run("what-if", "--drain", "n1")[1] == (
        "4 of the jobs that wait would start\n"
        "  evicts    team/big-0\n"
        "            and 120 more\n"
        "  starts    default/train\n"
        "            and 3 more\n"
    )


@pytest.mark.parametrize(
    ("pods", "unplaced", "words"),
    [
        (1, 0, "1 pod moves; it finds a place"),
        (1, 1, "1 pod moves; it finds no place"),
        (4, 0, "4 pods move; all find a place"),
        (4, 1, "4 pods move; 1 finds no place"),
        (4, 4, "4 pods move; none finds a place"),
    ],
)
def test_pods_of_a_drained_node_move(pods: int, unplaced: int, words: str) -> None:
    answer = WhatIfStatus(starts_now=False, drained_pods=pods, unplaced_pods=unplaced)
    assert text.what_if(answer, 0.0, of_job=False).splitlines()[1] == f"  drained   {words}"


def test_no_amount_is_told_in_thousandths() -> None:
    meta = ObjectMeta(name="job", namespace="ns")
    short = (ResourceShortage(resource="cpu", requested="40500m", free="38400m"),)
    about = ObjectRef(kind="Job", namespace="ns", name="job")
    holder = Holder(job=about, holds={"cpu": "249600m"})
    why = Explanation(metadata=meta, about=about, shortages=short, holders=(holder,))
    row = PendingJob(metadata=meta, owner=about, queue="default", shortages=short)
    held = QueueResource(resource="cpu", allocated="38400m", deserved="1500m", pending="500m")
    tree = QueueTree(metadata=ObjectMeta(name="default"), resources=(held,))

    explained = text.explanation(why, 0.0)
    listed = text.pending([row], 0.0, everywhere=False, wide=False)
    queues = text.tree([tree], wide=True)

    assert "cpu: 40.5 asked, 38.4 free" in explained
    assert "cpu=249.6" in explained
    assert "cpu 40.5 (38.4 free)" in listed
    assert {"38.4", "1.5", "0.5"} <= set(queues.split())
