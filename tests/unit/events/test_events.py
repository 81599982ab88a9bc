"""The catalogue, the envelope, the AsyncAPI document and the command line's lines."""

import argparse
import datetime as dt
import io
import json

import pytest

from pumice.cli import events as cli
from pumice.events import (
    CATALOGUE,
    EventsError,
    GangPlaced,
    GangUnschedulable,
    JobPhaseChanged,
    LeaderChanged,
    PodBound,
    PodEvicted,
    Received,
    Unknown,
    decode,
    encode,
    source,
    subject,
)
from pumice.events.envelope import decode_any
from shared.contracts.subjects import Subjects
from tools.write_asyncapi import PAGE, text

AT = 1_700_000_000.25
SOURCE = source(cluster="local", service="scheduler", instance="scheduler-1")
PLACED = GangPlaced(
    gang="ns/job-1", uid="u1", queue="default", job="ns/job", pods=2, nodes=("n1", "n2")
)


def wire(event, **changes):
    payload = json.loads(encode(event, id="e1", time=AT, source=SOURCE))
    return json.dumps({**payload, **changes}).encode()


def test_an_event_is_a_cloudevent_in_json():
    assert json.loads(encode(PLACED, id="e1", time=AT, source=SOURCE)) == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/pumice/local/scheduler/scheduler-1",
        "type": "io.pumice.gang.placed",
        "subject": "ns/job-1",
        "time": "2023-11-14T22:13:20.250000Z",
        "datacontenttype": "application/json",
        "data": {
            "gang": "ns/job-1",
            "uid": "u1",
            "queue": "default",
            "job": "ns/job",
            "pods": 2,
            "nodes": ["n1", "n2"],
        },
    }


def test_what_was_encoded_is_decoded():
    event = decode(encode(PLACED, id="e1", time=AT, source=SOURCE))
    assert event.data == PLACED
    assert event.time == dt.datetime.fromtimestamp(AT, tz=dt.UTC)


def test_a_type_that_is_not_known_is_given_as_it_is():
    event = decode(wire(PLACED, type="io.pumice.node.renamed"))
    assert isinstance(event.data, Unknown)
    assert json.loads(event.data.raw)["gang"] == "ns/job-1"
    assert event.data.key == "ns/job-1"


def test_a_field_that_is_not_known_is_tolerated():
    data = {"pod": "ns/p", "uid": "u", "node": "n1", "later": 7}
    bound = decode(wire(PodBound(pod="x", uid="y"), data=data)).data
    assert isinstance(bound, PodBound)
    assert bound.node == "n1"


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"nonsense", "malformed"),
        (wire(PLACED, data={"gang": 7}), "Expected `str`"),
        (wire(PLACED, time="yesterday"), "Invalid RFC3339"),
    ],
    ids=["no-json", "wrong-type", "no-time"],
)
def test_what_breaks_its_type_is_refused_and_quarantined_with_its_reason(payload, problem):
    with pytest.raises(EventsError, match=problem):
        decode(payload)
    aside = decode_any(payload).data
    assert isinstance(aside, Unknown)
    assert problem in aside.problem
    assert aside.raw == payload


@pytest.mark.parametrize(
    "event",
    [
        JobPhaseChanged(job="ns/a.b", uid="u", phase="Running"),
        LeaderChanged(service="cache", instance="cache-1"),
        PodEvicted(pod="weird ns/p>*", uid="u"),
    ],
    ids=lambda event: event.topic,
)
def test_the_subject_is_the_one_of_the_contract(event):
    contract = Subjects(cluster="my.cluster").event(event.topic, event.key)
    assert subject(event, cluster="my.cluster") == contract


def test_every_type_has_its_own_topic_of_two_tokens():
    topics = [each.topic for each in CATALOGUE]
    assert len(set(topics)) == len(topics)
    assert all(topic.count(".") == 1 for topic in topics)


def test_the_asyncapi_document_is_the_one_of_the_catalogue():
    assert PAGE.read_text() == text(), "run make crds"


def line(event, **changes):
    return Received(7, decode(wire(event, **changes)))


def test_a_line_for_people_says_what_matters():
    waiting = GangUnschedulable(
        gang="ns/g", gate="predicate", message="0/3 nodes fit", reasons={"Insufficient cpu": 3}
    )
    shown = cli.as_text(line(waiting)).split("  ", 1)[1]
    assert shown == (
        "     7  gang.unschedulable ns/g  "
        'gate=predicate message="0/3 nodes fit" reasons=3 x Insufficient cpu'
    )
    assert cli.as_text(line(PLACED)).endswith("ns/job-1  job=ns/job pods=2 nodes=n1,n2")


def test_a_line_for_programs_is_json():
    assert json.loads(cli.as_json(line(PLACED)))["data"]["nodes"] == ["n1", "n2"]
    assert json.loads(cli.as_json(line(PLACED)))["sequence"] == 7


def parsed(*argv, environ=None):
    parser = argparse.ArgumentParser(prog="pumice events", exit_on_error=False)
    cli.add_arguments(parser, environ or {})
    return parser.parse_args(argv)


def test_flags_are_read():
    args = parsed("--follow", "--since", "10m", "--type", "gang.placed", "--type", "PodBound")
    assert (args.since, args.type) == (600.0, [GangPlaced, PodBound])
    assert parsed(environ={"PUMICE_NATS": "nats://x:1"}).nats == "nats://x:1"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--since", "soon"), "'soon' is not a duration"),
        (("--type", "gang.lost"), "'gang.lost' is not a type of event; there are job.phase"),
        (("--since", "1m", "--seq", "3"), "not allowed with"),
    ],
)
def test_wrong_flags_are_named(argv, words):
    with pytest.raises(argparse.ArgumentError, match=words):
        parsed(*argv)


async def test_without_a_server_and_a_local_cluster_it_says_what_to_do(capsys, tmp_path):
    args = parsed("--data-dir", str(tmp_path))
    assert await cli.run(args, environ={}, out=io.StringIO()) == 1
    assert capsys.readouterr().err == (
        f"error: nothing runs in {tmp_path}: start it with `pumice up`, or name a NATS server"
        " (that of `pumice run` is in the directory that it names)\n"
    )


async def test_an_unreachable_server_is_one_clear_line(capsys):
    args = parsed("--nats", "nats://127.0.0.1:1")
    assert await cli.run(args, environ={}, out=io.StringIO()) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: cannot reach NATS at nats://127.0.0.1:1: ")
    assert said.count("\n") == 1
