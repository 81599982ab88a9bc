"""The sums that an administrator prints."""

import asyncio
import json
import shlex

import pytest

from services.accounting import report
from services.accounting.adapters.database import engine_of
from services.accounting.adapters.store import AccountingDatabase, StreamPosition
from services.accounting.books.ledger import RowChanges
from services.accounting.books.rows import Allocation, usage_of
from shared.runtime.values import Secret
from tests.support import pages

T = 20_759 * 86_400.0  # 2026-11-02


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/usage.db"
    row = Allocation(
        pod_uid="a", pod="a", namespace="ns", queue="q", user="ann", cpu_milli=500, started=T,
        ended=T + 7200,
    )  # fmt: skip

    async def write() -> None:
        engine = engine_of(url, Secret())
        store = AccountingDatabase(engine)
        await store.migrate()
        changes = RowChanges(allocations=[row], jobs=[], usage=dict(usage_of(row)))
        await store.write(changes, StreamPosition(stream="EVENTS"))
        await engine.dispose()

    asyncio.run(write())
    return url


def test_usage_is_printed_as_csv_and_json(url, capsys):
    words = ["--database", url, "--by", "user,queue", "--since", "2026-11-02"]
    assert report.main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "user,queue,resource,amountHours",
        "ann,q,cpu,1.0",
        "ann,q,pods,2.0",
    ]
    assert report.main([*words, "-o", "json"]) == 0
    cpu, _ = json.loads(capsys.readouterr().out)
    assert cpu == {"user": "ann", "queue": "q", "resource": "cpu", "amountHours": 1.0}
    assert report.main([*words[:-1], "2026-11-03"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_command_of_the_page_prints_the_sums(url, capsys):
    page = (pages.ROOT / "docs" / "accounting.md").read_text("utf-8")
    line = page.partition("```sh\npython -m services.accounting.report")[2].partition("```")[0]
    words = shlex.split(line.replace("\\\n", " "))
    words[words.index("--database") + 1] = url
    assert report.main(words) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["q,ann,cpu,1.0", "q,ann,pods,2.0"]


def test_an_unknown_column_is_refused(url, capsys):
    assert report.main(["--database", url, "--by", "node", "--since", "2026-11-02"]) == 2
    assert "usage can be summed by queue, user, namespace" in capsys.readouterr().err
