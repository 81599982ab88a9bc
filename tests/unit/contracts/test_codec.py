"""Golden bytes and refusals of the wire contract: a changed byte needs a new version."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts import codec, leases
from shared.contracts import messages as m
from shared.contracts.versions import ContractError, UnknownVersion

GOLDEN = {
    "fact": (
        m.Fact(kind="pods", key="ns/p", uid="u1", rv="7", body=msgspec.Raw(b'{"spec":{}}')),
        codec.decode_fact,
        b'{"v":1,"kind":"pods","key":"ns/p","uid":"u1","rv":"7","op":"put","body":{"spec":{}}}',
    ),
    "tombstone": (
        m.Fact(kind="nodes", key="n1", uid="u1", rv="9", op=m.Op.DELETE),
        codec.decode_fact,
        b'{"v":1,"kind":"nodes","key":"n1","uid":"u1","rv":"9","op":"delete","body":null}',
    ),
    "marker": (
        m.Marker(complete=("jobs", "pods"), bookmarks={"pods": "12"}, time=1.5, instance="c-1"),
        codec.decode_marker,
        b'{"v":1,"complete":["jobs","pods"],"bookmarks":{"pods":"12"},"time":1.5,"instance":"c-1"}',
    ),
    "leader": (
        m.LeaderRecord(service="cache", instance="c-1", time=2.0),
        codec.decode_leader,
        b'{"v":1,"service":"cache","instance":"c-1","time":2.0}',
    ),
    "bind": (
        m.BindGang(
            id="4-2-0",
            cycle=2,
            job="ns/g",
            job_uid="u0",
            queue="q",
            binds=(
                m.Bind(pod="ns/p", uid="u1", node="n1"),
                m.Bind(pod="ns/q", uid="u4", node="n1", owner_job="ns/j"),
            ),
        ),
        codec.decode_command,
        (
            b'{"type":"bind","v":1,"id":"4-2-0","cycle":2,"job":"ns/g","job_uid":"u0",'
            b'"queue":"q",'
            b'"binds":[{"pod":"ns/p","uid":"u1","node":"n1"},'
            b'{"pod":"ns/q","uid":"u4","node":"n1","owner_job":"ns/j"}]}'
        ),
    ),
    "bind with devices": (
        m.BindGang(
            id="4-2-0",
            cycle=2,
            job="ns/g",
            job_uid="u0",
            binds=(
                m.Bind(
                    pod="ns/p",
                    uid="u1",
                    node="n1",
                    devices=(
                        m.DeviceUse(claim="ns/c", uid="u5", allocation=msgspec.Raw(b'{"x":1}')),
                    ),
                ),
            ),
        ),
        codec.decode_command,
        (
            b'{"type":"bind","v":1,"id":"4-2-0","cycle":2,"job":"ns/g","job_uid":"u0",'
            b'"queue":"",'
            b'"binds":[{"pod":"ns/p","uid":"u1","node":"n1",'
            b'"devices":[{"claim":"ns/c","uid":"u5","allocation":{"x":1}}]}]}'
        ),
    ),
    "evict": (
        m.Evict(
            id="4-2-1",
            cycle=2,
            reason="preempt",
            preemptor=m.Preemptor(pod="ns/a", uid="u2", node="n1"),
            victims=(m.Victim(pod="ns/b", uid="u3", job="ns/g", node="n1"),),
        ),
        codec.decode_command,
        (
            b'{"type":"evict","v":1,"id":"4-2-1","cycle":2,"reason":"preempt",'
            b'"preemptor":{"pod":"ns/a","uid":"u2","node":"n1"},'
            b'"victims":[{"pod":"ns/b","uid":"u3","job":"ns/g","node":"n1"}]}'
        ),
    ),
    "desired podgroup": (
        m.DesiredPodGroup(
            key="ns/g",
            uid="u0",
            phase="Running",
            running=2,
            conditions=(
                m.DesiredCondition(
                    type="Scheduled",
                    status="True",
                    reason="ok",
                    transition_id="7",
                    last_transition_time="2026-01-01T00:00:00Z",
                ),
            ),
            rv="12",
        ),
        codec.decode_desired,
        (
            b'{"type":"podgroup","v":1,"key":"ns/g","uid":"u0","phase":"Running","running":2,'
            b'"succeeded":0,"failed":0,'
            b'"conditions":[{"type":"Scheduled","status":"True","reason":"ok",'
            b'"transitionId":"7","lastTransitionTime":"2026-01-01T00:00:00Z"}],'
            b'"cycle":0,"rv":"12"}'
        ),
    ),
    "desired native podgroup": (
        m.DesiredNativePodGroup(
            key="ns/g",
            uid="u2",
            conditions=(m.DesiredCondition(type="pumice.dev/Phase", status="True"),),
            rv="9",
        ),
        codec.decode_desired,
        (
            b'{"type":"nativepodgroup","v":1,"key":"ns/g","uid":"u2",'
            b'"conditions":[{"type":"pumice.dev/Phase","status":"True"}],"cycle":0,"rv":"9"}'
        ),
    ),
    "desired pod": (
        m.DesiredPod(
            key="ns/p",
            uid="u1",
            conditions=(m.DesiredCondition(type="PodScheduled", status="False"),),
        ),
        codec.decode_desired,
        (
            b'{"type":"pod","v":1,"key":"ns/p","uid":"u1",'
            b'"conditions":[{"type":"PodScheduled","status":"False"}],"cycle":0,"rv":""}'
        ),
    ),
    "desired ungated pod": (
        m.DesiredUngated(key="ns/p", uid="u1", cycle=3, rv="8"),
        codec.decode_desired,
        b'{"type":"ungated","v":1,"key":"ns/p","uid":"u1","cycle":3,"rv":"8"}',
    ),
    "desired node shard": (
        m.DesiredNodeShard(
            key="volcano", uid="u8", in_use=("n1",), to_add=("n2",), to_remove=(), cycle=3, rv="6"
        ),
        codec.decode_desired,
        (
            b'{"type":"nodeshard","v":1,"key":"volcano","uid":"u8","in_use":["n1"],'
            b'"to_add":["n2"],"to_remove":[],"cycle":3,"rv":"6"}'
        ),
    ),
    "desired queue": (
        m.DesiredQueue(
            key="default",
            uid="u9",
            allocated={"cpu": "2"},
            pending=7,
            cycle=3,
            rv="5",
            released=("gpu",),
        ),
        codec.decode_desired,
        (
            b'{"type":"queue","v":1,"key":"default","uid":"u9","allocated":{"cpu":"2"},'
            b'"pending":7,"cycle":3,"rv":"5","released":["gpu"]}'
        ),
    ),
    "outcome": (
        m.Outcome(
            intent="4-2-0",
            job="ns/g",
            items=(
                m.ItemOutcome(pod="ns/p", uid="u1", result=m.Result.BOUND, node="n1"),
                m.ItemOutcome(pod="ns/q", uid="u2", result=m.Result.FAILED, retry=m.Retry.LATER),
            ),
            instance="b-1",
            time=3.0,
        ),
        codec.decode_outcome,
        (
            b'{"v":1,"intent":"4-2-0","job":"ns/g","items":['
            b'{"pod":"ns/p","uid":"u1","result":"bound","node":"n1"},'
            b'{"pod":"ns/q","uid":"u2","result":"failed","retry":"later"}],'
            b'"instance":"b-1","time":3.0}'
        ),
    ),
    "wait": (
        m.WaitExplained(
            gang="ns/g",
            uid="u0",
            term=4,
            cycle=2,
            time=3.5,
            gate="predicate",
            message="0/1 nodes are available",
            nodes=1,
            reasons={"Insufficient cpu": 1},
            shortages=(m.Short(resource="cpu", requested=9000, largest_free=4000),),
        ),
        codec.decode_waiting,
        (
            b'{"v":1,"gang":"ns/g","uid":"u0","term":4,"cycle":2,"time":3.5,"gate":"predicate",'
            b'"message":"0/1 nodes are available","details":"","position":0,"nodes":1,'
            b'"reasons":{"Insufficient cpu":1},'
            b'"shortages":[{"resource":"cpu","requested":9000,"largest_free":4000}]}'
        ),
    ),
    "lease": (
        leases.LeaseRecord(holder="c-1", renewals=5, time=4.0),
        codec.decode_lease,
        b'{"v":1,"holder":"c-1","renewals":5,"time":4.0,"present":false}',
    ),
    "member": (
        leases.ServiceReplica(service="binder", instance="b-1", accepts=(1,), time=4.0),
        codec.decode_member,
        b'{"v":1,"service":"binder","instance":"b-1","accepts":[1],"time":4.0}',
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_every_message_has_the_golden_bytes_and_decodes_to_itself(name):
    message, decode, golden = GOLDEN[name]
    assert codec.encode(message) == golden
    assert decode(golden) == message


@pytest.mark.parametrize("name", GOLDEN)
def test_a_message_of_an_unknown_version_is_told_apart_from_a_broken_one(name):
    _, decode, golden = GOLDEN[name]
    newer = golden.replace(b'"v":1', b'"v":9')
    with pytest.raises(UnknownVersion, match="version 9") as caught:
        decode(newer)
    assert caught.value.version == 9
    with pytest.raises(ContractError, match=r"truncated|malformed"):
        decode(golden[:-3])


def test_a_newer_command_with_new_fields_counts_as_unknown_version_not_as_broken():
    golden = GOLDEN["bind"][2]
    newer = golden.replace(b'"v":1', b'"v":2,"shard":4')
    with pytest.raises(UnknownVersion):
        codec.decode_command(newer)


def test_a_command_with_an_unknown_field_is_refused_and_named():
    golden = GOLDEN["bind"][2]
    with pytest.raises(ContractError, match="dryRun"):
        codec.decode_command(golden.replace(b'"v":1', b'"v":1,"dryRun":true'))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("bind", b'{"pod":"ns/p",'),
        ("bind with devices", b'{"claim":"ns/c",'),
        ("evict", b'{"pod":"ns/b",'),
        ("evict", b'{"pod":"ns/a",'),
        ("desired podgroup", b'{"type":"Scheduled",'),
    ],
)
def test_a_part_of_an_order_with_an_unknown_field_is_refused_and_named(name, part):
    """It would be an order that is silently ignored: a pod bound without its devices."""
    _, decode, golden = GOLDEN[name]
    newer = golden.replace(part, part + b'"dryRun":true,')
    assert newer != golden
    with pytest.raises(ContractError, match="dryRun"):
        decode(newer)


def test_a_fact_with_an_unknown_field_is_accepted():
    golden = GOLDEN["fact"][2]
    assert codec.decode_fact(golden.replace(b'"v":1', b'"v":1,"shard":3')).key == "ns/p"


def test_large_payloads_are_deflated_and_small_ones_stay_readable():
    body = msgspec.Raw(msgspec.json.encode({"data": "x" * 100_000}))
    large = m.Fact(kind="jobs", key="ns/j", uid="u", rv="1", body=body)
    payload = codec.encode(large)
    assert len(payload) < 2_000
    assert codec.decode_fact(payload) == large
    assert codec.encode(GOLDEN["fact"][0]).startswith(b"{")


def test_a_bomb_and_a_torn_payload_are_refused():
    packed = codec.pack(b'{"v":1}' + b" " * 200_000)
    with pytest.raises(ContractError, match="cut off"):
        codec.unpack(packed[:-10])
    with pytest.raises(ContractError, match="inflated"):
        codec.unpack(b"x not zlib")


@given(st.binary(max_size=400))
def test_bytes_that_are_no_message_raise_a_contract_error_whatever_they_are(payload):
    for decode in (codec.decode_fact, codec.decode_command, codec.decode_outcome):
        with pytest.raises(ContractError):
            decode(payload)


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\x01", b"\\ud800"])
@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_that_are_no_text_are_refused_or_in_no_value_that_is_read(name, bad):
    """They may make a field's name an unknown one, which is left out."""
    _, decode, payload = GOLDEN[name]
    refused = 0
    for at in range(len(payload)):
        try:
            read = decode(payload[:at] + bad + payload[at:])
        except ContractError:
            refused += 1
        else:
            assert decode(codec.encode(read)) == read
    assert refused > len(payload) / 2


def test_why_a_payload_is_refused_is_short_however_long_its_names_are():
    payload = codec.encode(m.Evict(id="i", cycle=1, reason="r", victims=()))
    with pytest.raises(ContractError) as refused:
        codec.decode_command(payload[:-1] + b',"%s":1}' % (b"x" * 100_000))
    assert len(str(refused.value)) <= codec.REASON_MAX


@pytest.mark.parametrize(
    ("said", "seconds"),
    [({}, 0), (None, 0), ("6", 6), ("600", 10), ("-1", 0), ("²", 0), ("9" * 5000, 0), ("soon", 0)],
)
def test_a_deferral_is_some_seconds_and_anything_else_none(said, seconds) -> None:
    headers = {codec.DEFERRAL: said} if isinstance(said, str) else said
    assert codec.deferral_s(headers) == seconds
    assert codec.deferral_s(codec.deferral(6)) == 6
    assert codec.deferral(0) == {}
