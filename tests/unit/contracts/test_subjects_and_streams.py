"""Subjects, streams and permissions fit together: every subject has one stream and one writer."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.embedded.memory_nats.subjects import matches
from shared.contracts.permissions import permissions
from shared.contracts.streams import (
    JOB_PARTITIONS,
    Retention,
    all_streams,
    durable_consumers,
    streams,
)
from shared.contracts.subjects import Subjects, escape, key_of, partition_of, split_key, unescape

SUBJECTS = Subjects(cluster="c1")
WRITTEN = {
    "cache": [SUBJECTS.state("pods", "ns/p"), SUBJECTS.marker, SUBJECTS.leader("state")],
    "scheduler": [
        SUBJECTS.command(0),
        SUBJECTS.leader("command"),
        SUBJECTS.desired(1, "pods", "ns/p"),
        SUBJECTS.waiting("ns/g"),
    ],
    "binder": [SUBJECTS.outcome(0), SUBJECTS.poison],
    "accounting": [SUBJECTS.usage("research")],
}
SHARED = [SUBJECTS.lease("cache"), SUBJECTS.member("cache", "c-1")]
EVENT = SUBJECTS.event("gang.placed", "ns/j")


@pytest.mark.parametrize("subject", [*itertools.chain(*WRITTEN.values()), *SHARED, EVENT])
def test_every_subject_belongs_to_exactly_one_stream(subject):
    owners = [
        s.name for s in all_streams(streams("c1")) if any(matches(p, subject) for p in s.subjects)
    ]
    assert len(owners) == 1, owners


@pytest.mark.parametrize(("service", "subjects"), WRITTEN.items(), ids=WRITTEN)
def test_only_its_writer_may_publish_a_subject(service, subjects):
    for subject in subjects:
        allowed = [
            user
            for user, granted in permissions("c1").items()
            if any(matches(pattern, subject) for pattern in granted.publish)
        ]
        assert allowed == [service], subject


def test_no_user_may_publish_into_another_cluster_or_hear_another_users_inbox():
    for user, granted in permissions("c1").items():
        for pattern in granted.publish:
            assert pattern.startswith(("pumice.c1.", "$JS.")), (user, pattern)
        heard = {f"_INBOX_{user}.>"}
        if user == "events":
            heard |= {"_INBOX.>", "pumice.c1.events.>"}
        elif user != "declarer":
            heard |= {f"pumice.c1.presence.{user}.*"}
        if user == "controller":  # the copies of the events that it needs, republished by NATS
            heard |= {
                f"told.pumice.c1.events.{each}.*" for each in ("gang.admitted", "budget.reached")
            }
        if user == "accounting":
            heard |= {SUBJECTS.reports}
        assert set(granted.subscribe) == heard


@pytest.mark.parametrize("verb", ["CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "MSG.DELETE"])
def test_the_declarer_alone_may_change_a_stream(verb):
    for spec in all_streams(streams("c1")):
        allowed = [
            user
            for user, granted in permissions("c1").items()
            if any(matches(p, f"$JS.API.STREAM.{verb}.{spec.name}") for p in granted.publish)
        ]
        assert allowed == (["declarer"] if verb in ("CREATE", "UPDATE") else [])


def test_scheduler_and_visibility_alone_may_read_what_users_have_used():
    name = streams("c1").usage.name
    for verb in ("CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "STREAM.MSG.GET", "DIRECT.GET"):
        subject = f"$JS.API.{verb}.{name}" + (".x" if verb.startswith("CONSUMER") else "")
        allowed = [
            user
            for user, granted in permissions("c1").items()
            if any(matches(pattern, subject) for pattern in granted.publish)
        ]
        assert allowed == ["scheduler", "visibility"], subject


def test_visibility_alone_may_ask_accounting_for_reports():
    table = permissions("c1")
    assert [u for u, granted in table.items() if SUBJECTS.reports in granted.publish] == [
        "visibility"
    ]
    assert {u: granted.serves for u, granted in table.items() if granted.serves} == {
        "accounting": SUBJECTS.reports
    }


def test_the_declarer_alone_may_make_and_no_user_delete_a_durable_consumer():
    for consumer in durable_consumers("c1"):
        for verb, wanted in (("CREATE", ["declarer"]), ("DELETE", []), ("MSG.NEXT", ["binder"])):
            subject = f"$JS.API.CONSUMER.{verb}.{consumer.stream}.{consumer.durable}"
            allowed = [
                user
                for user, granted in permissions("c1").items()
                if any(matches(pattern, subject) for pattern in granted.publish)
            ]
            assert allowed == wanted, subject


def test_a_lease_and_an_announcement_have_one_writer():
    leases = {SUBJECTS.lease("cache"): "cache", SUBJECTS.lease("scheduler"): "scheduler"}
    leases |= {SUBJECTS.job_lease(p): "controller" for p in range(JOB_PARTITIONS)}
    leases |= {
        SUBJECTS.member(s, f"{s}-1.x"): s for s in ("cache", "scheduler", "binder", "controller")
    }
    for subject, writer in leases.items():
        allowed = [
            user
            for user, granted in permissions("c1").items()
            if any(matches(pattern, subject) for pattern in granted.publish)
        ]
        assert allowed == [writer], subject


def test_every_stream_is_bounded():
    for spec in all_streams(streams("c1")):
        assert spec.max_bytes > 0, spec.name
    assert streams("c1").command.retention is Retention.WORK_QUEUE


@given(st.text(max_size=40))
def test_any_name_becomes_one_token_and_comes_back(name):
    token = escape(name)
    if name != "_":
        assert unescape(token) == name
    assert token
    assert not set(token) & set(".*> \t\r\n")


def test_keys_split_and_join():
    assert split_key(key_of("ns", "a.b")) == ("ns", "a.b")
    assert split_key(key_of("", "node-1")) == ("", "node-1")


def test_a_key_keeps_its_partition_for_ever():
    assert [partition_of(f"ns/job-{i}", 4) for i in range(8)] == [1, 3, 1, 3, 0, 2, 0, 2]
