"""The benchmark of fair shares: with the plugin, who used little waits less."""

from pathlib import Path

import pytest

from benchmarks import fair_share
from benchmarks.forecast.traces import GPU, Trace
from pumice.replays.engine import ReplayedJob

HOUR = 3600.0


def flooded() -> Trace:
    """One GPU; ann submits thirty jobs of an hour at once, bob three an hour later."""
    asks = {"cpu": 1000, GPU: 1000}
    jobs = [ReplayedJob(f"a-{n}", n, HOUR, 1, asks, user="ann") for n in range(30)]
    jobs += [ReplayedJob(f"b-{n}", HOUR + n, HOUR, 1, asks, user="bob") for n in range(3)]
    node = {"cpu": 64_000, "memory": 1 << 38, GPU: 1000}
    return Trace("flood", {"n0": node}, sorted(jobs, key=lambda job: job.at))


def test_the_plugin_shortens_the_waits_of_the_user_who_used_little() -> None:
    plain, fair = (
        fair_share.measure(flooded(), configuration, half_life_s=7 * 24 * HOUR)
        for configuration in (fair_share.PLAIN, fair_share.FAIR)
    )
    assert plain.waits["bob"] > 20
    assert fair.waits["bob"] < 6
    assert max(index for _, index in fair.jain) > max(index for _, index in plain.jain)


def test_users_of_unequal_demand_get_all_jobs() -> None:
    trace = fair_share.given_to_users(flooded()._replace(jobs=flooded().jobs * 100), seed=1)
    users = sorted({job.user for job in trace.jobs})
    of_user = [sum(job.user == user for job in trace.jobs) for user in users]
    assert len(users) == fair_share.USERS
    assert of_user[0] > 3 * of_user[-1]


def test_a_trace_gives_two_lines_and_two_charts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("small", "", "", "1", str(3600 + at), str(at * 60), "4") for at in range(30)]
    file = tmp_path / "t.trace"
    file.write_text("\n".join("\t".join(row) for row in rows), "utf-8")
    fair_share.main([str(file), "--load", "3", "--into", str(tmp_path)])
    _, plain, fair = capsys.readouterr().out.splitlines()
    assert plain.startswith("gavel t")
    assert "fairshare" in fair
    assert len(list(tmp_path.glob("*.svg"))) == 2
