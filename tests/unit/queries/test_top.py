"""`pumice top`: one picture of queues, gangs and nodes, for a terminal of any size."""

import io
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
import yaml
from msgspec.structs import replace
from rich.console import Console

from pumice.queries.frame import FrameModel, amount, dominant, frame, tenth
from services.visibility.api import statuses
from shared.api.meta import ObjectMeta
from shared.api.time import parse
from shared.api.visibility import (
    NodeUse,
    ObjectRef,
    PendingJob,
    QueueResource,
    QueueTree,
    ResourceShortage,
    RunningJob,
)
from shared.kube.wire import Request
from tests.support.answers import ROOT, AnswersTransport, refused
from tests.unit.queries.cluster import NODES, NOW, TREES, unreachable
from tests.unit.queries.conftest import Run
from tests.unit.web.page_world import World

ASKED = Request(method="GET", path=f"{ROOT}/queuetrees")


def section(out: str, title: str) -> list[list[str]]:
    """Return the rows below a title, as words."""
    lines = [line.strip() for line in out.splitlines()]
    rows = lines[lines.index(title) + 2 :]
    return [row.split() for row in rows[: rows.index("") if "" in rows else None]]


def test_one_picture_shows_queues_gangs_and_nodes(run: Run) -> None:
    code, out, err = run("top", "--once")
    assert (code, err) == (0, "")
    assert "3 queues, 3 waiting, 1 running, 4 nodes" in out
    root, research, idle = section(out, "Queues")
    assert (root[0], root[-2:]) == ("root", ["62%", "cpu"])
    assert (research[0], research[-2:]) == ("research", ["125%", "cpu"])
    assert (idle[0], idle[-1]) == ("idle", "-")
    assert "is the cluster up" not in out
    assert section(out, "Waiting")[0][:3] == ["default/train", "research", "1"]
    assert section(out, "Running")[0][:4] == ["team/big", "research", "96", "12"]
    (nodes,) = section(out, "Nodes")
    assert nodes == [
        "4",
        "nodes,",
        "1",
        "away",
        "·",
        "·",
        "▒",
        "1",
        "·",
        "·",
        "▒",
        "1",
        "·",
        "·",
        "·",
        "·",
        "█",
        "2",
    ]


def test_a_user_of_one_namespace_sees_that_namespace(run: Run, way: AnswersTransport) -> None:
    way.forbidden = {"pendingjobs", "runningjobs", "queuetrees", "nodeuses"}
    code, out, _ = run("top", "--once")
    assert code == 0
    assert "2 waiting" in out
    assert "team/other" not in out
    assert "Nodes" not in out
    assert "pumice-visibility-viewer" in out


def test_all_namespaces_are_asked_for_alone_if_the_user_wants_all(
    run: Run, way: AnswersTransport
) -> None:
    way.forbidden = {"pendingjobs"}
    code, out, _ = run("top", "--once", "-A")
    assert code == 0
    assert "waiting" not in out
    assert "pumice-visibility-viewer" in out
    assert not any("namespaces/" in request.path for request in way.asked)


def test_another_form_holds_the_objects_of_one_picture(run: Run) -> None:
    names = run("top", "-o", "name")[1].splitlines()
    assert names[0] == "queuetree.visibility.pumice.dev/root"
    assert names[3:7] == [
        "pendingjob.visibility.pumice.dev/train",
        "pendingjob.visibility.pumice.dev/tune",
        "pendingjob.visibility.pumice.dev/other",
        "runningjob.visibility.pumice.dev/big",
    ]
    whole = json.loads(run("top", "-o", "json")[1])
    assert (whole["kind"], whole["apiVersion"], len(whole["items"])) == ("List", "v1", len(names))
    kinds = [item["kind"] for item in whole["items"]]
    assert list(dict.fromkeys(kinds)) == ["QueueTree", "PendingJob", "RunningJob", "NodeUse"]
    assert yaml.safe_load(run("top", "-o", "yaml")[1]) == whole


def test_a_form_of_what_the_user_may_not_see_says_what_is_missing(
    run: Run, way: AnswersTransport
) -> None:
    way.forbidden = {"queuetrees"}
    code, out, err = run("top", "-o", "name")
    assert code == 0
    assert "queuetree" not in out
    assert "pendingjob" in out
    assert err.startswith("note: ")
    assert err.count("\n") == 1


def test_a_wide_picture_has_every_row(run: Run, way: AnswersTransport) -> None:
    way.answers.jobs = tuple(
        replace(way.answers.jobs[0], metadata=ObjectMeta(name=f"j{at}", namespace="default"))
        for at in range(200)
    )
    assert len(section(run("top", "--once")[1], "Waiting")) < 200
    assert len(section(run("top", "-o", "wide")[1], "Waiting")) == 200


def test_a_service_without_nodes_and_running_jobs_is_enough(
    run: Run, way: AnswersTransport
) -> None:
    way.served = ["pendingjobs", "queuetrees"]
    code, out, _ = run("top", "--once", "-n", "team")
    assert code == 0
    assert "3 queues, 1 waiting" in out
    assert not any("nodeuses" in request.path for request in way.asked)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(unreachable(), 1), (refused(ASKED, statuses.no_such_path()), 4)],
    ids=["unreachable", "not-installed"],
)
def test_no_first_picture_is_a_failure(
    run: Run, way: AnswersTransport, refusal: Exception, code: int
) -> None:
    way.refuses = refusal
    found, out, err = run("top", "--once")
    assert (found, out) == (code, "")
    assert err.startswith("error: ")


def test_a_trouble_later_on_stands_below_the_picture(
    run: Run, way: AnswersTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live view goes on while the API server is away, and ends with an interrupt."""
    rounds = 0

    async def next_round(_: float) -> None:
        nonlocal rounds
        rounds += 1
        way.refuses = unreachable()
        if rounds == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("pumice.cli.top.asyncio.sleep", next_round)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    code, out, _ = run("top")
    assert code == 130
    above, reason, _ = out.partition("GET /apis at https://cluster.example:6443")
    assert reason
    assert above.count("3 queues, 3 waiting, 1 running, 4 nodes") == 2, "it stays as it was"


@pytest.mark.parametrize("height", [24, 40, 60, 200])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_picture_fits_its_terminal(height: int, width: int) -> None:
    world = World(nodes=90, waiting=90, running=90, now_s=parse(NOW), seed=3)
    picture = FrameModel(
        host="https://cluster.example:6443",
        now_s=parse(NOW),
        clock="03:00:00",
        queues=world.queues,
        waiting=world.jobs,
        running=world.running,
        nodes=world.nodes,
        errors=("something is wrong",),
    )
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(frame(picture, height=height))
    lines = out.getvalue().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def of_lists(width: int, *jobs: PendingJob, running: Sequence[RunningJob] = ()) -> str:
    """Return the picture of jobs on a terminal of so many columns."""
    picture = FrameModel(
        host="host", now_s=parse(NOW), clock="03:00:00", waiting=jobs, running=running
    )
    out = io.StringIO()
    Console(file=out, width=width).print(frame(picture, height=40))
    return out.getvalue()


def lacking(*short: tuple[str, str, str], name: str = "train") -> PendingJob:
    return PendingJob(
        metadata=ObjectMeta(name=name, namespace="default"),
        owner=ObjectRef(kind="Job", namespace="default", name=name),
        queue="research",
        position=1,
        gate="predicate",
        shortages=tuple(
            ResourceShortage(resource=resource, requested=requested, free=free)
            for resource, requested, free in short
        ),
        waiting_since=NOW,
    )


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (140, ["cpu 8 (0 free), nvidia.com/gpu 2 (0 free)", "nvidia.com/gpu 16 (4 free)"]),
        (90, ["cpu 8, nvidia.com/gpu 2", "nvidia.com/gpu 16 (4 free)"]),
        (80, ["cpu 8 +1", "nvidia.com/gpu 16"]),
    ],
)
def test_what_is_short_is_shortened_by_whole_words(width: int, shown: list[str]) -> None:
    """The list says how many resources it leaves out, and cuts none of them."""
    both = lacking(("cpu", "8", "0"), ("nvidia.com/gpu", "2", "0"))
    out = of_lists(width, both, lacking(("nvidia.com/gpu", "16", "4"), name="tune"))
    assert "…" not in out
    for words in shown:
        assert f"{words}  " in out, out


def test_a_narrow_picture_counts_the_resources_that_it_leaves_out() -> None:
    holds = {"cpu": "48500m", "memory": "12Gi", "nvidia.com/gpu": "12"}
    job = RunningJob(
        metadata=ObjectMeta(name="preprocessing-of-images", namespace="default"),
        owner=ObjectRef(kind="Job", namespace="default", name="preprocessing-of-images"),
        queue="research",
        allocated=holds,
    )
    assert "cpu 48.5, memory 12Gi, nvidia.com/gpu 12 " in of_lists(140, running=[job])
    narrow = of_lists(80, running=[job])
    assert "default/preproc" in narrow
    assert "cpu 48.5 +2" in narrow


def test_the_dominant_share_is_of_what_is_deserved_or_else_allowed() -> None:
    assert [dominant(queue) for queue in TREES] == [(0.625, "cpu"), (1.25, "cpu"), (0.0, "")]
    pods = QueueResource(resource="pods", deserved="4", allocated="4")
    assert dominant(QueueTree(metadata=ObjectMeta(name="q"), resources=(pods,))) == (0.0, "")
    assert dominant(QueueTree(metadata=ObjectMeta(name="empty"))) == (0.0, "")


def test_the_root_queue_deserves_the_cluster() -> None:
    used = [
        QueueResource(resource="cpu", allocated="6", total="8"),
        QueueResource(resource="memory", allocated="1Gi", total="64Gi"),
    ]
    root = QueueTree(metadata=ObjectMeta(name="root"), resources=tuple(used))
    assert dominant(root) == (0.75, "cpu")
    below = replace(root, depth=1)
    assert dominant(below) == (0.0, "")
    all_of_it = [replace(each, deserved=each.allocated) for each in used]
    assert dominant(replace(below, resources=tuple(all_of_it))) == (1.0, "cpu")


def test_the_fullest_resource_of_a_node_counts() -> None:
    assert [tenth(node) for node in NODES] == [10, 10, 5, 2]
    assert tenth(NodeUse(metadata=ObjectMeta(name="empty"))) == 0


def test_what_is_no_amount_counts_as_none() -> None:
    assert [amount(text) for text in ("", "1500m", "2Gi", "many")] == [0.0, 1.5, 2.0 * 2**30, 0.0]


def test_the_other_commands_do_not_import_rich() -> None:
    script = "import sys, pumice.cli.why, pumice.cli.top; print('rich' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
