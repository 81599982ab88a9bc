"""`pumice why | when | queue | timeline` on a cluster of fixed answers."""

import json
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from pumice.cli.main import COMMANDS, main
from pumice.queries import text
from services.visibility.api import statuses
from shared.api.time import read
from shared.api.visibility import ExpectedStart, Finding, ResourceShortage
from shared.kube.wire import Request
from tests.support.answers import ROOT, AnswersTransport, refused
from tests.unit.queries.cluster import EXPLANATION, JOBS, NOW, unreachable
from tests.unit.queries.cluster import TIMELINE as TIMELINE_OF_TRAIN
from tests.unit.queries.conftest import Run

ASKED = Request(method="GET", path=f"{ROOT}/pendingjobs")
WHY = """\
Job default/train: Pending in queue research, place 1 in line
  enqueue  passed
  queue    FAILED       16 asked, 4 left
  gang     not reached
short:      nvidia.com/gpu: 16 asked, 4 free
nodes:      80 of 120: Insufficient nvidia.com/gpu; 40 of 120: taint gpu=only
held by:    team/big (nvidia.com/gpu=96, perhaps ends in 10m)
            and 2 in namespaces that you may not see
would help: 12 more nvidia.com/gpu in queue research (tried: it then starts now)
next:       the expected end of team/big
start:      in 12m (half of the forecasts), in 2h30m at the latest (nine of ten); \
by how long similar jobs ran
decided:    4s ago
"""
STARTS_OF_ALL = """\
NAMESPACE   NAME    QUEUE      PLACE   WAITING   START    LATEST     BASIS
default     train   research   1       45m       in 12m   in 2h30m   by how long similar jobs ran
default     tune    research   2       45m       -        -          \
not within 7 days, because the queue is closed
team        other   research   3       45m       -        -          -
"""
LIST = """\
NAME    QUEUE      PLACE   GATE    SHORT                        WAITING   START
train   research   1       queue   nvidia.com/gpu 16 (4 free)   45m       in 12m
tune    research   2       queue   nvidia.com/gpu 16 (4 free)   45m       -
"""
TREE = """\
QUEUE        STATE    RUNNING   INQUEUE   PENDING   RESOURCE         ALLOCATED   DESERVED   \
GUARANTEE   CAPABILITY
root         Open     4         0         2         cpu              40          64         \
-           -
  research   Open     3         1         2         cpu              40          32         \
8           -            overused
                                                    nvidia.com/gpu   96          -          \
-           100
  idle       Closed   0         0         0         -                -           -          \
-           -
"""
TIMELINE = """\
default/train: Pending in queue research
      ~45m ago  Created
       45m ago  Waits         45m  queue
       40m ago  Evicted            pod/train-0  by team/big
  … 7 pods are left out
"""


def test_why_tells_gates_shortages_holders_and_what_would_help(run: Run) -> None:
    assert run("why", "train") == (0, WHY, "")


def test_why_without_a_job_lists_those_of_the_namespace(run: Run) -> None:
    assert run("why") == (0, LIST, "")


def test_why_lists_all_namespaces_and_more_columns(run: Run) -> None:
    code, out, _ = run("why", "-A", "-o", "wide")
    heads, *rows = out.splitlines()
    assert code == 0
    assert heads.split()[0] == "NAMESPACE"
    assert heads.split()[-4:] == ["LATEST", "PRIORITY", "OWNER", "MESSAGE"]
    assert [row.split()[:2] for row in rows] == [
        ["default", "train"],
        ["default", "tune"],
        ["team", "other"],
    ]


def test_a_namespace_that_is_not_there_is_named(run: Run, way: AnswersTransport) -> None:
    way.answers.jobs = []
    assert run("why", "-n", "nosuch") == (1, "", "error: there is no namespace nosuch\n")
    assert run("when", "-n", "nosuch") == (1, "", "error: there is no namespace nosuch\n")
    assert run("why", "-n", "team") == (0, "no job waits\n", "")


def test_nothing_that_waits_is_said(run: Run, way: AnswersTransport) -> None:
    way.answers.jobs = []
    assert run("why") == (0, "no job waits\n", "")


def test_the_namespace_is_that_of_flag_job_or_context(run: Run, way: AnswersTransport) -> None:
    run("when", "train")
    run("when", "team/other")
    run("when", "other", "-n", "team")
    run("when", "other", "--context", "team")
    paths = [request.path for request in way.asked]
    assert (
        paths
        == [f"{ROOT}/namespaces/default/pendingjobs/train"]
        + [f"{ROOT}/namespaces/team/pendingjobs/other"] * 3
    )


def test_when_tells_the_forecast(run: Run) -> None:
    code, out, _ = run("when", "train")
    assert code == 0
    assert out == (
        "default/train: in 12m (half of the forecasts), in 2h30m at the latest (nine of ten); "
        "by how long similar jobs ran (place 1 in queue research, waiting for 45m)\n"
    )


def test_when_without_a_job_lists_both_bounds_and_why_there_are_none(run: Run) -> None:
    assert run("when", "-A") == (0, STARTS_OF_ALL, "")


@pytest.mark.parametrize("job", ["tune", "team/other"])
def test_when_ends_with_3_if_the_start_is_not_known(run: Run, job: str) -> None:
    code, out, _ = run("when", job)
    assert code == 3
    assert ": not known" in out


def test_the_tree_of_queues_is_indented(run: Run) -> None:
    assert run("queue", "tree") == (0, TREE, "")


def test_the_line_of_a_queue_holds_all_namespaces(run: Run, way: AnswersTransport) -> None:
    code, out, _ = run("queue", "line", "research")
    assert code == 0
    assert [row.split()[:2] for row in out.splitlines()[1:]][-1] == ["team", "other"]
    assert way.asked[0].path == f"{ROOT}/queues/research/pendingjobs"


def test_a_timeline_tells_moments_and_spans(run: Run) -> None:
    assert run("timeline", "train") == (0, TIMELINE, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("timeline",), "pumice timeline: the following arguments are required: JOB"),
        (("queue",), "pumice queue: the following arguments are required: {tree,line}"),
        (("queue", "line"), "pumice queue line: the following arguments are required: QUEUE"),
        (("why", "-o", "table"), "pumice why: argument -o/--output: invalid choice: 'table'"),
        (("top", "-n"), "pumice top: argument -n/--namespace: expected one argument"),
        (("completion", "csh"), "pumice completion: argument shell: invalid choice: 'csh'"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused_in_one_line_that_names_the_help(
    run: Run, words: tuple[str, ...], says: str
) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {says}")
    assert err.endswith(f"; see `{says.partition(':')[0]} --help`\n")
    assert err.count("\n") == 1


def test_other_forms_hold_the_answer_of_the_server(run: Run) -> None:
    whole = json.loads(run("why", "train", "-o", "json")[1])
    assert whole["kind"] == "Explanation"
    assert yaml.safe_load(run("why", "train", "-o", "yaml")[1]) == whole
    assert run("why", "train", "-o", "name")[1] == "explanation.visibility.pumice.dev/train\n"
    names = [f"pendingjob.visibility.pumice.dev/{job.metadata.name}" for job in JOBS]
    assert run("when", "-A", "-o", "name")[1].splitlines() == names


@pytest.mark.parametrize(
    ("refusal", "code", "says"),
    [
        (unreachable(), 1, "is the cluster up, and is it the one of this kubeconfig?"),
        (refused(ASKED, statuses.unauthorized()), 1, "log in anew"),
        (refused(ASKED, statuses.unavailable("not synced")), 1, "try again in a moment"),
        (refused(ASKED, statuses.ApiFailure(403, "no pendingjobs")), 1, "pumice-visibility-viewer"),
        (refused(ASKED, statuses.no_such_path()), 4, "visibility of Pumice is not installed"),
    ],
    ids=["unreachable", "unauthorized", "not-synced", "forbidden", "not-installed"],
)
def test_each_refusal_is_one_line_with_a_hint(
    run: Run, way: AnswersTransport, refusal: Exception, code: int, says: str
) -> None:
    way.refuses = refusal
    found, out, err = run("why")
    assert (found, out) == (code, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_a_job_that_is_not_known_brings_a_similar_name(run: Run) -> None:
    code, _, err = run("why", "tarin")
    assert code == 1
    assert err == "error: nothing is known of default/tarin; did you mean train?\n"


def test_a_job_that_has_started_is_not_one_that_nothing_is_known_of(run: Run) -> None:
    code, out, err = run("when", "team/big")
    assert (code, out) == (1, "")
    assert err == (
        "error: team/big does not wait, its phase is Running;"
        " `pumice timeline team/big` tells its life\n"
    )


def test_a_job_that_the_scheduler_has_not_handled_yet_waits(
    run: Run, way: AnswersTransport
) -> None:
    gates = tuple(replace(gate, state="NotReached") for gate in EXPLANATION.gates)
    way.answers.explanations["default", "new"] = replace(
        EXPLANATION, gates=gates, next_event="the scheduler's next cycle"
    )
    code, out, err = run("when", "new")
    assert (code, out) == (1, "")
    assert err.startswith("error: default/new has no forecast yet: the scheduler's next cycle;")


def test_a_wait_that_goes_on_has_lasted_until_now() -> None:
    entry = replace(TIMELINE_OF_TRAIN.entries[1], seconds=None, goes_on=True)
    life = replace(TIMELINE_OF_TRAIN, entries=(entry,), hidden_pods=0)
    (_, line) = text.timeline(life, read(NOW) or 0.0).splitlines()
    assert line.split() == ["45m", "ago", "Waits", ">45m", "queue"]


def test_a_start_of_which_only_the_median_is_known_says_why() -> None:
    late = "more than one of ten draws is not within 4h"
    expected = replace(JOBS[0].expected_start, latest=None, unknown=late)
    assert text.start(expected, read(NOW) or 0.0) == (
        f"in 12m (half of the forecasts), {late}; by how long similar jobs ran"
    )


def test_a_job_that_never_fits_is_said_to_start_never() -> None:
    never = "never with the nodes and queues that there are: no node has nvidia.com/gpu"
    assert text.start(ExpectedStart(unknown=never, never=True), 0.0) == never


def test_a_start_by_guessed_durations_is_marked_in_lists() -> None:
    guess = replace(JOBS[0].expected_start, basis="history, default; without jobs to come")
    job, now_s = replace(JOBS[0], expected_start=guess), read(NOW) or 0.0
    (_, row) = text.pending([job], now_s, everywhere=False, wide=True).splitlines()
    assert "in ~12m   in ~2h30m" in row
    (_, row) = text.starts([job], now_s, everywhere=False, wide=False).splitlines()
    assert "in ~12m   in ~2h30m   a guess: no similar job has ended here" in row


@pytest.mark.parametrize("command", ["why", "when"])
def test_a_job_that_was_deleted_is_said_to_be_gone_and_where_its_life_is_told(
    run: Run, command: str
) -> None:
    code, out, err = run(command, "left")
    assert (code, out) == (1, "")
    assert err == (
        "error: default/left is gone, it was deleted while Pending;"
        " `pumice timeline default/left` tells its life\n"
    )
    assert run("timeline", "left")[1].splitlines()[0] == (
        "default/left: gone, deleted while Pending in queue research"
    )


JOBS_OF_VOLCANO = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def vcjob(name: str, phase: str, **state: str) -> dict[str, Any]:
    created = "2026-01-02T02:59:00Z"
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": "u",
            "creationTimestamp": created,
        },
        "spec": {"queue": "research", "tasks": [{"replicas": 1}]},
        "status": {"state": {"phase": phase, **state}},
    }


@pytest.fixture
def grouped(way: AnswersTransport) -> AnswersTransport:
    """A cluster with Jobs, of which two have no PodGroup."""
    way.objects[JOBS_OF_VOLCANO] = {
        "items": [
            vcjob("vol", "Pending", reason="PVCError", message="no claim 'data'"),
            vcjob("new", ""),
            vcjob("train", "Pending"),
            vcjob("placed", "Pending"),
            vcjob("ended", "Completed"),
        ]
    }
    group = {"metadata": {"name": "placed-u", "namespace": "default"}}
    way.objects[GROUPS] = {"items": [group]}
    return way


def test_jobs_without_a_group_are_among_those_that_wait(
    run: Run, grouped: AnswersTransport
) -> None:
    code, out, err = run("why")
    assert (code, err) == (0, "")
    *_, new, vol, of_new, of_vol = out.splitlines()
    assert new.split() == ["new", "research", "-", "podgroup", "-", "1m", "-"]
    assert vol.split() == ["vol", "research", "-", "podgroup", "-", "1m", "-"]
    assert of_new == "default/new: no PodGroup yet: the controller has not handled it"
    assert of_vol == "default/vol: no PodGroup yet: PVCError: no claim 'data'"
    assert len(out.splitlines()) == len(LIST.splitlines()) + 4


def test_jobs_without_a_group_are_listed_by_when_and_as_json(
    run: Run, grouped: AnswersTransport
) -> None:
    assert run("when")[1].endswith(" no PodGroup yet: PVCError: no claim 'data'\n")
    listed = json.loads(run("why", "-o", "json")[1])["items"]
    assert [job["metadata"]["name"] for job in listed] == ["train", "tune", "new", "vol"]


def test_jobs_without_a_group_are_left_out_where_their_user_may_not_list_jobs(
    run: Run, grouped: AnswersTransport
) -> None:
    del grouped.objects[JOBS_OF_VOLCANO]
    assert run("why") == (0, LIST, "")


@pytest.mark.parametrize("command", ["why", "when"])
def test_a_job_without_a_group_says_what_its_controller_has_said(
    run: Run, way: AnswersTransport, command: str
) -> None:
    phase = replace(TIMELINE_OF_TRAIN.entries[0], what="Phase", message="Pending: PVCError: no a")
    way.answers.timelines["default", "vol"] = replace(
        TIMELINE_OF_TRAIN, phase="Pending", entries=(phase,)
    )
    code, out, err = run(command, "vol")
    assert (code, out) == (1, "")
    assert err == (
        "error: default/vol has no PodGroup yet: Pending: PVCError: no a;"
        " `pumice timeline default/vol` tells its life\n"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("why", "a/b/c/d"), "'a/b/c/d' is no NAME, NAMESPACE/NAME or KIND/NAME of a job"),
        (("when", "team/"), "'team/' is no NAME, NAMESPACE/NAME or KIND/NAME of a job"),
        (("timeline", ".."), "'..' is no NAME, NAMESPACE/NAME or KIND/NAME of a job"),
        (("when", "--watch", "/x"), "'/x' is no NAME, NAMESPACE/NAME or KIND/NAME of a job"),
        (("queue", "line", "a/../b"), "'a/../b' is no name of a queue"),
        (("why", "-n", "../queues"), "'../queues' is no name of a namespace"),
        (("what-if", "-n", "a%2fb", "--drain", "n"), "'a%2fb' is no name of a namespace"),
        (("top", "--once", "-n", "a/b"), "'a/b' is no name of a namespace"),
    ],
)
def test_a_name_that_no_object_has_leads_to_no_other_path(
    run: Run, way: AnswersTransport, words: tuple[str, ...], says: str
) -> None:
    code, out, err = run(*words)
    assert (code, out, err) == (2, "", f"error: {says}\n")
    assert {request.path for request in way.asked} <= {ROOT}


def test_what_has_a_meaning_in_paths_is_quoted_in_names(run: Run, way: AnswersTransport) -> None:
    assert run("why", "a?b#c d")[0] == 1
    assert way.asked[0].path == f"{ROOT}/namespaces/default/explanations/a%3Fb%23c%20d"


def test_a_queue_that_is_not_known_brings_a_similar_name(run: Run) -> None:
    code, _, err = run("queue", "line", "reserch")
    assert (code, err) == (1, "error: there is no queue reserch; did you mean research?\n")


def test_without_a_kubeconfig_the_usage_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "--kubeconfig", "none-such"]) == 2
    assert capsys.readouterr().err == "error: kubeconfig none-such: no such file or directory\n"


@pytest.mark.parametrize("name", ["why", "when", "what-if", "queue", "timeline"])
def test_each_command_has_a_help(run: Run, name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0
    assert out.startswith(f"usage: pumice {name}")
    assert COMMANDS[name].help in run("--help")[1]


def test_an_explanation_tells_how_many_more_hold_what_is_short(run: Run) -> None:
    more = replace(EXPLANATION, remaining_holders=31)
    told = text.explanation(more, read("2026-01-02T03:00:00Z") or 0.0)
    assert "ends in 10m)\n            and 31 that hold less\n            and 2 in" in told


def test_several_resources_of_a_pod_are_short_together() -> None:
    """A node has the CPUs, and none has CPUs and GPUs."""
    both = [
        ResourceShortage(resource=name, requested="4", free=free, pods=1)
        for name, free in (("cpu", "4"), ("nvidia.com/gpu", "1"))
    ]
    assert text.shortages(both, "predicate") == (
        "1 pod of 4 cpu and 4 nvidia.com/gpu; no node has that free (most: 4 cpu, 1 nvidia.com/gpu)"
    )
    assert text.shortages([replace(each, pods=2, nodes=1, places=1) for each in both]) == (
        "2 pods of 4 cpu and 4 nvidia.com/gpu each; 1 node has that free"
    )


def test_nodes_with_as_many_pods_as_they_may_have_are_said_to_be_so() -> None:
    full = ResourceShortage(resource="pods", requested="1", free="0", pods=2)
    assert text.shortages([full], "predicate") == (
        "room for 2 pods; every node has as many pods as it may have"
    )


def test_an_explanation_tells_what_was_found_after_the_leaders_decision():
    at = "2026-01-02T02:59:58Z"
    other = Finding(at=at, gate="quota", message="no share left")
    now_s = read("2026-01-02T03:00:00Z")

    told = [
        text.explanation(replace(EXPLANATION, latest=found), now_s).splitlines()[-1]
        for found in (other, Finding(at=at))
    ]

    assert told == [
        "latest:     stopped at the gate quota: no share left, on the state of 2s ago",
        "latest:     nothing stops it, on the state of 2s ago",
    ]
