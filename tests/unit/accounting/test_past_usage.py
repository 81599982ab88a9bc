"""What accounting's database says that users have used, with decay."""

import pytest
from sqlalchemy import insert, update

from services.accounting.adapters.database import engine_of, migrate
from services.accounting.adapters.past_usage import SETTLED_S, UsageSums
from services.accounting.schema import ALLOCATIONS
from shared.model.decayed_usage import decay
from shared.runtime.values import Secret

HALF_LIFE_S = 3600.0
GPU = "nvidia.com/gpu"


@pytest.fixture
async def engine(tmp_path):
    engine = engine_of(f"sqlite:///{tmp_path}/usage.db", Secret())
    await migrate(engine)
    yield engine
    await engine.dispose()


def row(uid, started, ended=None, **more):
    return {
        "pod_uid": uid,
        "pod": uid,
        "namespace": "ns",
        "job": "j",
        "job_uid": "u",
        "queue": "research",
        "user": "ann",
        "node": "n0",
        "cpu_milli": 2000,
        "memory_bytes": 1 << 30,
        "scalars": {GPU: 4000},
        "started": started,
        "ended": ended,
        "reason": "",
        "approximate": False,
        **more,
    }


async def write(engine, *rows):
    async with engine.begin() as connection:
        await connection.execute(insert(ALLOCATIONS), list(rows))


def integral(start, end, now, steps=20_000):
    """The decayed seconds of an allocation, by the midpoint rule."""
    width = (end - start) / steps
    return width * sum(
        decay(now - start - (step + 0.5) * width, HALF_LIFE_S) for step in range(steps)
    )


async def test_usage_is_the_integral_of_what_was_held(engine):
    now = 100_000.0
    await write(engine, row("a", now - 9000, now - 5000), row("b", now - 1000))
    usage = await UsageSums(engine, HALF_LIFE_S).at(now)
    seconds = integral(now - 9000, now - 5000, now) + integral(now - 1000, now, now)
    assert set(usage) == {("research", "ann")}
    assert usage["research", "ann"] == pytest.approx(
        {"cpu": 2 * seconds, "memory": (1 << 30) * seconds, GPU: 4 * seconds}, rel=1e-6
    )


async def test_the_namespace_stands_for_a_pod_without_a_user(engine):
    await write(engine, row("a", 0.0, user=""))
    assert set(await UsageSums(engine, HALF_LIFE_S).at(60.0)) == {("research", "ns")}


async def test_reports_after_each_other_agree_with_the_first_one_of_a_restart(engine):
    kept, now = UsageSums(engine, HALF_LIFE_S), 100_000.0
    await write(engine, row("old", now - 9000, now - 8000), row("held", now - 50, user="bob"))
    for step in range(30):
        now += 60.0
        await write(engine, row(f"p{step}", now - 30, user="bob" if step % 3 else "ann"))
        if step >= 9:
            async with engine.begin() as connection:
                ends = update(ALLOCATIONS).where(ALLOCATIONS.c.pod_uid == f"p{step - 9}")
                await connection.execute(ends.values(ended=now - SETTLED_S / 2))
        fresh = await UsageSums(engine, HALF_LIFE_S).at(now)
        found = await kept.at(now)
        assert found.keys() == fresh.keys()
        for key, used in fresh.items():
            assert found[key] == pytest.approx(used, rel=1e-9)
