"""Usage reports from SQLite and from PostgreSQL."""

import pytest
import pytest_asyncio

from services.accounting.adapters import reports as sums
from services.accounting.adapters.database import engine_of
from services.accounting.adapters.reports import UsageReports
from services.accounting.adapters.store import AccountingDatabase, Gap
from services.accounting.books.rows import JobRow
from shared.api.time import format_seconds
from shared.api.usage_reports import RecordGap, ReportRow, UsageReportSpec
from shared.runtime.errors import Rejected
from shared.runtime.values import Secret
from tests.integration.accounting.written import AT, DAY, T, allocation, changes
from tests.support.clock import VirtualClock

NOW = T + DAY + 7200
QUERY = UsageReportSpec(report="usage")


@pytest_asyncio.fixture
async def report(store, engine):
    ended = allocation("a", ended=T + DAY + 3600, job_uid="j1", reason="Completed", node="n1")
    rows = [
        ended,
        allocation("b", user="bob", ended=T + 3600, job_uid="j2", reason="Evicted"),
        allocation("c", started=T + DAY, job_uid="j3"),
        allocation(
            "d", user="cy", queue="dev", started=T - DAY, cpu_milli=0,
            scalars={"nvidia.com/gpu": 4000},
        ),
    ]  # fmt: skip
    jobs = [
        JobRow(
            uid=uid, namespace="ns", name=name, kind="Job", queue="research", user=user,
            submitted=T + at, started=T + at + wait, phase=phase, waits={"quota": wait},
            ended=T + 7200 if phase == "Completed" else None,
        )
        for uid, name, user, at, wait, phase in (
            ("j1", "one", "ann", 0.0, 10.0, "Completed"),
            ("j2", "two", "bob", 1.0, 30.0, "Running"),
            ("j3", "three", "ann", DAY, 20.0, "Running"),
        )
    ]  # fmt: skip
    gap = Gap(stream="EVENTS", begin=T + 60, end=T + 120, reason="lost")
    await store.write(changes(*rows, jobs=jobs), AT, [gap])
    found = UsageReports(engine, clock=VirtualClock(NOW))

    async def of(report: str, *by: str, since: float = T, until: float | None = None, **fields):
        end = None if until is None else format_seconds(until)
        spec = UsageReportSpec(
            report=report, by=by, since=format_seconds(since), until=end, **fields
        )
        return await found.report(spec)

    return of


def lines(status, column="amountHours"):
    return {tuple(row.group.values()): row.values[column] for row in status.rows}


async def test_usage_is_summed_by_group_and_contains_what_still_runs(report):
    found = await report("usage", "user")
    assert found.rows[0] == ReportRow(
        group={"user": "ann", "resource": "cpu"}, values={"amountHours": 54.0}
    )
    assert lines(found) == {
        ("ann", "cpu"): 54.0,
        ("ann", "pods"): 27.0,
        ("bob", "cpu"): 2.0,
        ("bob", "pods"): 1.0,
        ("cy", "nvidia.com/gpu"): 4 * 26.0,
        ("cy", "pods"): 26.0,
    }
    gap = RecordGap(begin=format_seconds(T + 60), end=format_seconds(T + 120), reason="lost")
    assert found.gaps == (gap,)


async def test_days_of_usage_add_up_to_the_sum(report):
    found = lines(await report("usage", "day", "user", since=T - DAY))
    assert found["1970-04-11", "cy", "pods"] == 24.0
    assert found["1970-04-12", "ann", "pods"] == 3.0
    total = lines(await report("usage", "user", since=T - DAY))
    for (user, resource), hours in total.items():
        days = (h for (_, u, r), h in found.items() if (u, r) == (user, resource))
        assert sum(days) == pytest.approx(hours)


async def test_usage_of_a_past_time_ends_with_its_last_day(report):
    found = lines(await report("usage", "user", until=T + DAY))
    assert found == {
        ("ann", "cpu"): 48.0,
        ("ann", "pods"): 24.0,
        ("bob", "cpu"): 2.0,
        ("bob", "pods"): 1.0,
        ("cy", "nvidia.com/gpu"): 96.0,
        ("cy", "pods"): 24.0,
    }


async def test_a_report_is_about_one_user_queue_or_namespace_only(report):
    assert {user for user, _ in lines(await report("usage", "user", user="bob"))} == {"bob"}
    assert {queue for queue, _ in lines(await report("usage", "queue", queue="dev"))} == {"dev"}
    assert lines(await report("jobs", "user", user="bob"), "submitted") == {("bob",): 1}
    assert (await report("usage", "user", namespace="other")).rows == ()
    assert [job.name for job in (await report("history", user="bob")).jobs] == ["two"]
    assert lines(await report("waits", "user", user="bob"), "jobs") == {("bob",): 1}
    assert set(lines(await report("efficiency", "user", user="bob"), "lostHours")) == {
        ("bob", "cpu"),
        ("bob", "pods"),
    }


async def test_jobs_are_counted(report):
    found = await report("jobs", "day", "phase")
    assert [(tuple(row.group.values()), row.values) for row in found.rows] == [
        (("1970-04-11", "Completed"), {"submitted": 1, "started": 1, "ended": 1, "restarts": 0}),
        (("1970-04-11", "Running"), {"submitted": 1, "started": 1, "ended": 0, "restarts": 0}),
        (("1970-04-12", "Running"), {"submitted": 1, "started": 1, "ended": 0, "restarts": 0}),
    ]


async def test_waits_have_percentiles_and_gates(report):
    (row,) = (await report("waits")).rows
    assert row.values == {
        "jobs": 3, "meanSeconds": 20.0, "p50Seconds": 20.0, "p90Seconds": 30.0, "maxSeconds": 30.0,
    }  # fmt: skip
    assert lines(await report("waits", "gate", "user"), "meanSeconds") == {
        ("quota", "ann"): 15.0,
        ("quota", "bob"): 30.0,
    }


async def test_efficiency_tells_what_was_lost(report):
    found = {tuple(row.group.values()): row.values for row in (await report("efficiency")).rows}
    assert found[("pods",)] == {
        "allocatedHours": 26.0, "completedHours": 25.0, "lostHours": 1.0, "efficiency": 0.9615,
    }  # fmt: skip


async def test_the_history_of_a_job_has_its_pods_and_what_it_used(report):
    newest, *_, oldest = (await report("history")).jobs
    assert (newest.name, oldest.name) == ("three", "one")
    assert newest.used == {"pods": 2.0, "cpu": 4.0}
    assert newest.pods == ()
    (job,) = (await report("history", job="one")).jobs
    (pod,) = job.pods
    assert (pod.name, pod.node, pod.reason) == ("a", "n1", "Completed")
    assert job.waits == {"quota": 10.0}
    assert (await report("history", since=T + DAY, user="ann")).jobs[0].name == "three"


async def test_pages_follow_one_another_without_a_gap(report):
    for kind, by in (("usage", ("user",)), ("history", ())):
        whole = await report(kind, *by)
        paged, after = [], ""
        while True:
            page = await report(kind, *by, limit=1, after=after)
            assert len(page.rows) + len(page.jobs) == 1
            paged += [*page.rows, *page.jobs]
            after = page.next
            if not after:
                break
        assert paged == [*whole.rows, *whole.jobs]


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("report", {"report": "nothing"}),
        ("by", {"by": ("node",)}),
        ("by", {"by": ("phase",)}),
        ("by", {"by": ("user", "user")}),
        ("limit", {"limit": 0}),
        ("limit", {"limit": 1001}),
        ("since", {"since": "yesterday"}),
        ("since", {"since": "2060-01-01T00:00:00Z"}),
        ("since", {"since": "0001-01-01T00:00:00Z"}),
        ("until", {"until": "2026-11-01"}),
        ("after", {"after": "x"}),
        ("after", {"report": "history", "after": "WyJhIl0="}),
        ("job", {"job": "one"}),
    ],
)
async def test_a_wrong_field_is_named(store, engine, field, given):
    found = UsageReports(engine, clock=VirtualClock(T))
    with pytest.raises(Rejected) as refused:
        await found.report(UsageReportSpec(**{"report": "usage", **given}))
    assert refused.value.field == f"spec.{field}"


async def test_a_report_that_reads_too_many_rows_is_refused(report, monkeypatch):
    monkeypatch.setattr(sums, "GROUPS_MAX", 1)
    with pytest.raises(Rejected, match="more than 1 rows"):
        await report("usage", "user")


async def test_a_report_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    class HastyClock(VirtualClock):
        def monotonic(self) -> float:
            self._time += 20.0
            return self._time

    monkeypatch.setattr(sums, "_STEPS", 1)
    engine = engine_of(f"sqlite:///{tmp_path}/slow.db", Secret())
    await AccountingDatabase(engine).migrate()
    with pytest.raises(Rejected, match="takes longer than 30 s"):
        await UsageReports(engine, clock=HastyClock(T)).report(QUERY)
    assert (await UsageReports(engine, clock=VirtualClock(T)).report(QUERY)).rows == ()
    await engine.dispose()
