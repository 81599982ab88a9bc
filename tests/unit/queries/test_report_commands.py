"""`pumice report`, `history`, `sacct`, `sreport`, `sshare`: what they ask for and print."""

import io
import json
import sys

import pytest

from pumice.cli.main import main
from shared.api.usage_reports import (
    RecordedJob,
    RecordedPod,
    RecordGap,
    ReportRow,
    ShareRow,
    UsageReportSpec,
    UsageReportStatus,
)
from tests.support.answers import AnswersTransport
from tests.unit.queries.conftest import Run

DAY = "2026-11-01T00:00:00Z"
ROWS = tuple(
    ReportRow(
        group={"queue": "research", "user": user, "resource": resource}, values={"amountHours": x}
    )
    for user, resource, x in (
        ("ann", "cpu", 2.5), ("ann", "nvidia.com/gpu", 8.0), ("bob", "cpu", 4.0)
    )
)  # fmt: skip
POD = RecordedPod(
    name="train-0", node="n1", started="2026-11-01T00:01:00Z", ended="2026-11-02T01:01:00Z",
    reason="Evicted", resources={"cpu": 2.0, "nvidia.com/gpu": 8.0},
)  # fmt: skip
JOB = RecordedJob(
    namespace="team", name="train", uid="u", queue="research", user="ann", phase="Terminated",
    reason="JobDeadlineExceeded", submitted=DAY, started="2026-11-01T00:01:00Z",
    ended="2026-11-02T01:01:00Z", pod_count=1, requested={"cpu": 2.0}, used={"cpu": 50.0},
    waits={"quota": 60.0}, pods=(POD,),
)  # fmt: skip
SHARES = (
    ShareRow(queue="research", raw_shares=3, norm_shares=0.75, raw_usage=400, effective_usage=0.4),
    ShareRow(
        queue="research", user="ann", depth=1, raw_shares=1, norm_shares=0.25, raw_usage=300,
        norm_usage=0.3, effective_usage=0.75, fair_share=0.5,
    ),
)  # fmt: skip


def asked(way: AnswersTransport) -> UsageReportSpec:
    return way.answers.reported[-1]


def test_a_report_is_a_table_csv_or_json(run: Run, way: AnswersTransport) -> None:
    way.answers.report = UsageReportStatus(rows=ROWS)
    words = ("report", "usage", "--by", "queue,user", "--since", "2026-11-01")
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["QUEUE", "USER", "RESOURCE", "AMOUNT-HOURS"]
    assert out.splitlines()[1].split() == ["research", "ann", "cpu", "2.5"]
    assert asked(way) == UsageReportSpec(
        report="usage", by=("queue", "user"), since=DAY, limit=1000
    )
    _, out, _ = run(*words, "-o", "csv")
    assert out.splitlines()[:2] == ["queue,user,resource,amountHours", "research,ann,cpu,2.5"]
    _, out, _ = run(*words, "-o", "json")
    row = {"queue": "research", "user": "bob", "resource": "cpu", "amountHours": 4.0}
    assert json.loads(out)[-1] == row


def test_who_may_see_no_others_gets_the_own_usage_with_a_note(
    run: Run, way: AnswersTransport
) -> None:
    way.sees_own_usage_only = True
    way.answers.report = UsageReportStatus(rows=ROWS)
    code, _, err = run("report", "usage")
    assert (code, err) == (0, "note: this is your own usage; you may not see that of others\n")
    assert asked(way).mine
    code, out, err = run("report", "usage", "--queue", "research")
    assert (code, out) == (1, "")
    assert "pumice-usage-viewer gives this" in err


def test_pages_are_collected(run: Run, way: AnswersTransport, monkeypatch) -> None:
    pages = [UsageReportStatus(rows=ROWS[:2], next="x"), UsageReportStatus(rows=ROWS[2:])]

    async def page(spec):
        way.answers.reported.append(spec)
        return pages[bool(spec.after)]

    monkeypatch.setattr(way.answers, "usage_report", page)
    assert len(run("report", "usage", "-o", "csv")[1].splitlines()) == 4
    assert asked(way).after == "x"


def test_a_gap_is_noted(run: Run, way: AnswersTransport) -> None:
    gap = RecordGap(begin=DAY, end="2026-11-02T00:00:00Z", reason="events were lost")
    way.answers.report = UsageReportStatus(gaps=(gap,))
    _, out, err = run("report", "jobs")
    assert out == "no rows\n"
    assert "is approximate: events were lost" in err


def test_parquet_needs_a_library_that_the_message_names(
    run: Run, way: AnswersTransport, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    way.answers.report = UsageReportStatus(rows=ROWS)
    code, out, err = run("report", "usage", "-o", "parquet")
    assert (code, out) == (2, "")
    assert "pip install 'pumice[parquet]'" in err


def test_parquet_has_the_rows_with_their_types(way: AnswersTransport, capfdbinary) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet`")
    way.answers.report = UsageReportStatus(rows=ROWS)
    assert main(["report", "usage", "--by", "queue,user", "-o", "parquet"]) == 0
    table = parquet.read_table(io.BytesIO(capfdbinary.readouterr().out))
    assert table.to_pylist() == [{**row.group, **row.values} for row in ROWS]


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "now-3", "11/01/26"])
def test_a_wrong_time_is_refused(run: Run, text: str) -> None:
    code, _, err = run("report", "usage", "--since", text)
    assert code == 2
    assert f"{text!r} is no time" in err


def test_the_history_shows_jobs_and_the_pods_of_one(run: Run, way: AnswersTransport) -> None:
    way.answers.report = UsageReportStatus(jobs=(JOB,))
    code, out, _ = run("history", "team/train")
    assert code == 0
    assert out.splitlines()[1].split() == [
        *("team", "train", "ann", "research", "Terminated", DAY, "1m", "1d1h", "1", "cpu=50"),
    ]
    assert out.splitlines()[-1].split()[:2] == ["train-0", "n1"]
    assert (asked(way).namespace, asked(way).job) == ("team", "train")
    assert json.loads(run("history", "-o", "json")[1])[0]["waits"] == {"quota": 60.0}


def test_sacct_prints_columns_of_slurm(run: Run, way: AnswersTransport) -> None:
    way.answers.report = UsageReportStatus(jobs=(JOB,))
    names = "JobID,User,Partition,State,Elapsed,Planned,ReqTRES,CPUTimeRAW,NodeList"
    code, out, _ = run("sacct", "-j", "team/train", "-P", "--format", names)
    assert code == 0
    assert out.splitlines() == [
        names.replace(",", "|"),
        "team/train|ann|research|TIMEOUT|1-01:00:00|00:01:00|cpu=2|180000|",
        "team/train.train-0|||PREEMPTED|1-01:00:00|00:01:00|cpu=2,gres/gpu=8|180000|n1",
    ]
    assert (asked(way).namespace, asked(way).job, asked(way).mine) == ("team", "train", False)
    assert len(run("sacct", "-j", "train", "-X", "-n", "-P")[1].splitlines()) == 1
    assert run("sacct", "-s", "COMPLETED", "-n")[1] == ""


def test_sacct_shows_the_own_jobs_of_today_by_default(run: Run, way: AnswersTransport) -> None:
    run("sacct")
    assert asked(way).mine
    assert str(asked(way).since).endswith("T00:00:00Z")
    run("sacct", "-a", "-S", "2026-11-01", "-E", "2026-11-02T12:00:00", "-A", "research")
    spec = asked(way)
    assert (spec.mine, spec.since, spec.queue) == (False, DAY, "research")
    assert spec.until == "2026-11-02T12:00:00Z"
    run("sacct", "-u", "bob")
    assert (asked(way).mine, asked(way).user) == (False, "bob")
    code, _, err = run("sacct", "--format", "Nodes")
    assert (code, "there is no column 'Nodes'" in err) == (2, True)


def test_sacct_cuts_a_column_to_its_width(run: Run, way: AnswersTransport) -> None:
    way.answers.report = UsageReportStatus(jobs=(JOB,))
    _, out, _ = run("sacct", "-X", "--format", "JobID%6,State")
    assert out.splitlines() == [
        " JobID        State",
        "------ ------------",
        "team/+      TIMEOUT",
    ]


def test_sreport_sums_by_account_and_user(run: Run, way: AnswersTransport) -> None:
    way.answers.report = UsageReportStatus(rows=ROWS)
    words = ("sreport", "cluster", "AccountUtilizationByUser", "start=2026-11-01", "-P")
    code, out, _ = run(*words)
    assert (code, out.splitlines()) == (0, [
        "Account|Login|TRES Name|Used", "research|ann|cpu|150", "research|bob|cpu|240",
    ])  # fmt: skip
    assert (asked(way).since, asked(way).by) == (DAY, ("queue", "user"))
    _, out, _ = run(*words, "-t", "hours", "-T", "gres/gpu", "-n")
    assert out == "research|ann|gres/gpu|8\n"
    _, out, _ = run("sreport", "user", "TopUsage", "topcount=1", "-P", "-n")
    assert out == "bob|research|cpu|240\n"


@pytest.mark.parametrize(
    "words", [("job", "Sizes"), ("user", "TopUsage", "since=x"), ("user", "TopUsage", "start=x")]
)
def test_sreport_refuses_what_it_does_not_have(run: Run, words: tuple[str, ...]) -> None:
    assert run("sreport", *words)[0] == 2


def test_sshare_prints_columns_of_slurm(run: Run, way: AnswersTransport) -> None:
    way.answers.report = UsageReportStatus(shares=SHARES)
    code, out, _ = run("sshare", "-a", "-l", "-P")
    assert (code, out.splitlines()) == (0, [
        "Account|User|RawShares|NormShares|RawUsage|NormUsage|EffectvUsage|FairShare",
        "research||3|0.750000|400|0.000000|0.400000|",
        " research|ann|1|0.250000|300|0.300000|0.750000|0.500000",
    ])  # fmt: skip
    assert not asked(way).mine
    _, out, _ = run("sshare")
    assert "NormUsage" not in out
    assert asked(way).mine
