"""A running scheduler writes its next cycle to a file on request, and the file replays."""

import signal
import stat
from pathlib import Path

import pytest

from services.scheduler.dump import read
from services.scheduler.replay import differences, replayed
from tests.contract.scheduler.scheduler_stage import Stage
from tests.support.wait import until


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """A directory of its own: the stage keeps its logs in the other."""
    directory = tmp_path / "dumps"
    directory.mkdir()
    return directory


async def test_a_cycle_that_was_asked_for_replays_to_the_same_plan(stage: Stage, dumps: Path):
    await stage.cluster(nodes=2)
    service = await stage.start(cache_dump_dir=str(dumps))
    await stage.gang("placed", 3)
    await stage.until_commands(1)  # its pods are assumed: STATE never shows them bound
    await stage.gang("large", 9)
    await stage.gang("gone", 1)
    await stage.fact("pods", "ns/gone-0", None)
    await until(lambda: stage.desired("podgroups", "ns/large"), describe="a status", deadline_s=30)
    service.process.signal(signal.SIGUSR1)
    line = await service.said("cycle_dumped")
    (path,) = dumps.iterdir()
    assert str(path) in line
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("rb") as file:
        dump = read(file)
    assert {fact.key for fact in dump.facts if fact.kind == "podgroups"} == {
        "ns/placed",
        "ns/large",
        "ns/gone",
    }
    assert "ns/gone-0" not in {fact.key for fact in dump.facts}
    assert len(dump.header.memory["assumptions"]) == 3
    assert {e.job for e in dump.plan.explanations} == {"ns/large", "ns/gone"}
    assert differences(dump.plan, replayed(dump)) == []


async def test_a_request_that_cannot_be_met_is_answered_in_the_log(stage: Stage, tmp_path: Path):
    await stage.cluster(nodes=1)
    service = await stage.start(cache_dump_dir=str(tmp_path / "missing"))
    service.process.signal(signal.SIGUSR1)
    assert "No such file or directory" in await service.said("cycle_not_dumped")
    await stage.gang("g", 1)
    await stage.until_commands(1)  # it goes on


async def test_a_scheduler_that_may_not_dump_says_so(stage: Stage, dumps: Path):
    service = await stage.start(cache_dumper="false", cache_dump_dir=str(dumps))
    service.process.signal(signal.SIGUSR1)
    assert "--cache-dumper is off" in await service.said("cycle_not_dumped")
    assert list(dumps.iterdir()) == []
