"""A recorded cycle makes the same plan elsewhere; a file that holds none says so in one line."""

import gzip
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from services.scheduler.decide import configure
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.dump import (
    BadDump,
    Dump,
    DumpTooLarge,
    Header,
    Recording,
    latest,
    read,
    without_secrets,
    write,
)
from services.scheduler.replay import differences, main, replayed
from services.scheduler.scheduler_state import SchedulerState
from shared.contracts import messages as m
from tests.support.world import fact as fact_of
from tests.support.world import gone, named

CONF = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: overcommit}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: binpack}
"""
ROOT = Path(__file__).parents[3]


class History:
    """A cluster that changes at random under a scheduler that decides in between."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.facts: list[m.Fact] = []
        self.scheduler = scheduler()
        self.cycle = 0
        for name in ("a", "b"):
            spec = {"weight": self.random.randint(1, 3)}
            self.put("queues", name, {"spec": spec, "status": {"state": "Open"}})

    def put(self, kind: str, key: str, body: dict | None, annotations: dict | None = None) -> None:
        created = f"2026-01-01T00:00:{self.random.randrange(60):02}Z"
        meta = named(key, annotations=annotations or {}, creationTimestamp=created)
        fact = gone(kind, key) if body is None else fact_of(kind, {"metadata": meta, **body})
        self.facts.append(fact)
        assert self.scheduler.fold([fact]) == []

    def change(self) -> None:
        pick = self.random
        number = pick.randrange(12)
        if pick.random() < 0.3:
            amounts = {"cpu": str(pick.randint(2, 8)), "memory": "16Gi", "pods": "20"}
            if pick.random() < 0.4:
                amounts[f"example.com/gpu{pick.randrange(3)}"] = "4"
            gone = pick.random() < 0.25
            self.put("nodes", f"n{number}", None if gone else {"status": {"allocatable": amounts}})
            return
        size = pick.randint(1, 4)
        spec = {"minMember": size, "queue": pick.choice("ab"), "minResources": {"cpu": str(size)}}
        self.put(
            "podgroups",
            f"ns/g{number}",
            {"spec": spec, "status": {"phase": pick.choice(["Pending", "Inqueue", "Running"])}},
        )
        for index in range(pick.randint(0, size)):
            requests = {"cpu": pick.choice(["500m", "1", "2"])}
            if pick.random() < 0.2:
                requests[f"example.com/gpu{pick.randrange(3)}"] = "1"
            container = {"name": "c", "resources": {"requests": requests}}
            node = pick.choice(["", "", f"n{pick.randrange(12)}"])
            self.put(
                "pods",
                f"ns/g{number}-{index}",
                {
                    "spec": {
                        "schedulerName": "volcano",
                        "nodeName": node,
                        "containers": [container],
                    },
                    "status": {"phase": "Running" if node else "Pending"},
                },
                {"scheduling.k8s.io/group-name": f"g{number}"},
            )

    def record(self) -> Dump:
        """Decide once more; return the cycle as a dump."""
        self.cycle += 1
        now = 100.0 * self.cycle
        memory, waiting_groups = self.scheduler.memory()
        header = Header(
            pumice="test",
            instance="t",
            now=now,
            cycle=self.cycle,
            config=configure(CONF),
            settings=DecisionSettings(),
            memory=memory,
            waiting_groups=waiting_groups,
        )
        decision = self.scheduler.decide(header.config, now=now, cycle=self.cycle, token=1)
        if self.random.random() < 0.7 and not decision.plan.is_empty:
            self.scheduler.assume_statuses(decision.plan)
        return Dump(header=header, facts=latest(self.facts), plan=decision.full_plan)


def scheduler() -> SchedulerState:
    return SchedulerState(DecisionSettings(), gang_message=10, settle_s=1.0)


def packed(dump: Dump, limit_bytes: int = 1 << 30) -> bytes:
    file = io.BytesIO()
    write(dump, file, limit_bytes=limit_bytes)
    return file.getvalue()


def recorded(seed: int = 1, changes: int = 60) -> Dump:
    history = History(seed)
    for _ in range(changes):
        history.change()
    return history.record()


@pytest.mark.parametrize("seed", range(12))
def test_a_recorded_cycle_makes_the_same_plan_again(seed):
    history = History(seed)
    decided = 0
    for _ in range(8):
        for _ in range(12):
            history.change()
        dump = history.record()
        decided += len(dump.plan.binds) + len(dump.plan.explanations)
        again = replayed(read(io.BytesIO(packed(dump))))
        unlike = differences(dump.plan, again)
        assert not unlike, (
            dump.header.cycle,
            [(getattr(dump.plan, n), getattr(again, n)) for n in unlike],
        )
    assert decided


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_the_command_says_that_it_is_the_recorded_plan_under_any_hash_seed(hash_seed, tmp_path):
    path = tmp_path / "cycle.json.gz"
    path.write_bytes(packed(recorded()))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "services.scheduler", "replay", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "This is the plan that was recorded." in done.stdout
    assert "QUEUE" in done.stdout


def test_json_has_the_plan_and_whether_it_is_the_same(tmp_path, capsys):
    path = tmp_path / "cycle.json.gz"
    dump = recorded()
    path.write_bytes(packed(dump))
    assert main([str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["same"], answer["differs"]) == (True, [])
    assert len(answer["plan"]["binds"]) == len(dump.plan.binds)


def test_another_plan_than_the_recorded_one_is_told_and_exits_with_1(tmp_path, capsys):
    dump = recorded()
    assert dump.plan.binds
    path = tmp_path / "cycle.json.gz"
    path.write_bytes(
        packed(msgspec.structs.replace(dump, plan=msgspec.structs.replace(dump.plan, binds=())))
    )
    assert main([str(path)]) == 1
    assert "NOT the plan that was recorded; it differs in: binds" in capsys.readouterr().out


# --- files that cannot be used -------------------------------------------------------------------


def changed_header(**fields) -> bytes:
    lines = gzip.decompress(packed(recorded())).split(b"\n")
    header = json.loads(lines[0]) | fields
    return gzip.compress(b"\n".join([json.dumps(header).encode(), *lines[1:]]))


def without_a_fact() -> bytes:
    lines = gzip.decompress(packed(recorded())).split(b"\n")
    return gzip.compress(b"\n".join([*lines[:2], *lines[3:]]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(lambda: b"hello", "is not gzipped", id="another-file"),
        pytest.param(lambda: b"", "first line is not its header", id="empty"),
        pytest.param(lambda: gzip.compress(b"{}\n"), "first line is not its header", id="json"),
        pytest.param(lambda: packed(recorded())[:-200], "cut off or damaged", id="truncated"),
        pytest.param(
            lambda: gzip.compress(gzip.decompress(packed(recorded()))[:-300]),
            "cut off or damaged in the last line",
            id="without-trailer",
        ),
        pytest.param(without_a_fact, r"damaged: \d+ facts of \d+", id="a-fact-lost"),
        pytest.param(
            lambda: changed_header(version=2, pumice="9.9"),
            r"version 2 \(written by Pumice 9.9\), this release reads version 1",
            id="version",
        ),
        pytest.param(
            lambda: changed_header(now="noon"), r"damaged in the first line: .*\$.now", id="field"
        ),
    ],
)
def test_a_file_that_holds_no_cycle_is_refused_with_one_clear_line(content, message):
    with pytest.raises(BadDump, match=message):
        read(io.BytesIO(content()))


def test_the_command_refuses_in_one_line_and_exits_with_2(tmp_path, capsys):
    path = tmp_path / "no.gz"
    assert main([str(path)]) == 2
    path.write_bytes(b"hello")
    assert main([str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"error: {path}: No such file or directory",
        f"error: {path}: this is no dump of a cycle: it is not gzipped",
    ]


def test_a_cycle_with_a_plugin_that_is_not_there_names_it():
    dump = recorded()
    kept = ("priority", "gang", "conformance", "overcommit", "drf", "predicates", "proportion")
    with pytest.raises(BadDump, match="not installed: binpack, nodeorder"):
        replayed(dump, dict.fromkeys(kept, dict))


def test_a_dump_is_never_larger_than_its_limit():
    with pytest.raises(DumpTooLarge, match="larger than 0 MiB"):
        packed(recorded(), limit_bytes=2000)


# --- what a dump must not tell -------------------------------------------------------------------


def test_secrets_stay_out_of_a_dump():
    history = History(1)
    container = {"name": "c", "env": [{"name": "K", "value": "hunter2"}], "args": ["--pw=hunter2"]}
    body = {"spec": {"schedulerName": "volcano", "containers": [container]}, "status": {}}
    said = {"kubectl.kubernetes.io/last-applied-configuration": '{"env": "hunter2"}'}
    history.put("pods", "ns/p", body, said)
    assert b"hunter2" not in gzip.decompress(packed(history.record()))


def test_values_of_options_that_are_secrets_are_left_out():
    config = configure(
        'actions: "allocate"\n'
        "tiers: [{plugins: [{name: gang, arguments: "
        "{url: 'http://me:pw1@host/x', apiToken: pw2}}]}]\n"
        "metrics: {type: elasticsearch, elasticsearch.password: pw3, address: 'https://u:pw4@h'}\n"
    )
    text = msgspec.json.encode(without_secrets(config)).decode()
    assert "pw" not in text
    assert "http://redacted@host/x" in text


# --- recording -----------------------------------------------------------------------------------


def fact(key: str, rv: str, op: m.Op = m.Op.PUT) -> m.Fact:
    return m.Fact(kind="pods", key=key, uid=key, rv=rv, op=op)


def test_a_recording_is_complete_when_the_cycles_have_folded_what_was_read():
    recording = Recording(folded_seq=5)
    recording.folded([fact("b", "6")], 6, anew=False)
    assert not recording.is_complete
    recording.read([fact("a", "1"), fact("c", "9")], 9)
    assert not recording.is_complete
    recording.folded([fact("c", "9"), fact("a", "10")], 10, anew=False)
    assert recording.is_complete
    assert [(f.key, f.rv) for f in recording.facts()] == [("b", "6"), ("c", "9"), ("a", "10")]


def test_what_is_gone_when_the_cycle_runs_is_not_recorded():
    recording = Recording(folded_seq=0)
    recording.read([fact("a", "1"), fact("b", "2")], 2)
    recording.folded([fact("a", "3", m.Op.DELETE)], 3, anew=False)
    assert [f.key for f in recording.facts()] == ["b"]


def test_a_recording_is_void_when_state_begins_anew():
    recording = Recording(folded_seq=0)
    recording.read([], 0)
    recording.folded([], 0, anew=True)
    assert not recording.is_complete
    assert recording.void


def test_a_dump_holds_every_setting_that_decisions_depend_on():
    dump = recorded()
    settings = DecisionSettings(seed=7, csi_storage=False, mindcluster=True, queue_gates=True)
    header = msgspec.structs.replace(dump.header, settings=settings)
    again = read(io.BytesIO(packed(msgspec.structs.replace(dump, header=header))))
    assert again.header.settings == settings
