"""`pumice replay-week`: what another configuration would have changed for recorded jobs."""

import argparse
import json
import time
from pathlib import Path

import pytest
from sqlalchemy import insert

from pumice.cli import what_if as command
from pumice.cli.main import main
from pumice.local.errors import WrongSettingError
from pumice.replays.engine import node_object, queue_object
from services.accounting.adapters.database import engine_of, migrate
from services.accounting.schema import ALLOCATIONS, JOBS
from shared.api.kinds import NODE, QUEUE
from shared.runtime.values import Secret
from tests.support.scripted_api import ScriptedApi
from tests.support.scripted_api import json as answer

HOUR = 3600.0
GPU = "nvidia.com/gpu"
FAIR = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: fairshare}]
- plugins: [{name: overcommit}, {name: predicates}, {name: proportion}]
"""


def job(name, user, submitted, started):
    row = {
        "uid": name, "namespace": "ns", "name": name, "kind": "Job", "queue": "default",
        "user": user, "submitted": submitted, "admitted": submitted, "started": started,
        "ended": started + HOUR, "phase": "Completed", "reason": "", "restarts": 0,
        "min_member": 1, "requested": {}, "waits": {}, "gate": "", "gate_since": None,
    }  # fmt: skip
    pod = {
        "pod_uid": f"{name}-0", "pod": f"{name}-0", "namespace": "ns", "job": name,
        "job_uid": name, "queue": "default", "user": user, "node": "n0", "cpu_milli": 1000,
        "memory_bytes": 1 << 30, "scalars": {GPU: 1000}, "started": started,
        "ended": started + HOUR, "reason": "", "approximate": False,
    }  # fmt: skip
    return row, pod


@pytest.fixture
async def recorded(tmp_path):
    """One GPU: ann submitted thirty jobs of an hour at once, bob three an hour later."""
    begin = time.time() - 48 * HOUR
    rows = [job(f"a{n}", "ann", begin + n, begin + n * HOUR) for n in range(30)]
    rows += [job(f"b{n}", "bob", begin + HOUR + n, begin + (30 + n) * HOUR) for n in range(3)]
    url = f"sqlite:///{tmp_path}/usage.db"
    engine = engine_of(url, Secret())
    await migrate(engine)
    async with engine.begin() as connection:
        await connection.execute(insert(JOBS), [row for row, _ in rows])
        await connection.execute(insert(ALLOCATIONS), [pod for _, pod in rows])
    await engine.dispose()
    objects = [
        {"kind": "Node", **node_object("n0", {"cpu": 8000, "memory": 1 << 34, GPU: 1000})[1]},
        {"kind": "Queue", **queue_object("default")[1]},
    ]
    (tmp_path / "cluster.json").write_text(json.dumps({"items": objects}))
    (tmp_path / "fair.conf").write_text(FAIR)
    return tmp_path, url


def words(recorded, *more):
    folder, url = recorded
    files = ["--cluster", str(folder / "cluster.json"), "--conf", str(folder / "fair.conf")]
    return ["replay-week", "--database", url, *files, *more]


def test_the_user_who_used_little_would_have_waited_less(recorded, capsys):
    assert main(words(recorded, "-o", "json")) == 0
    rows = {row["user"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"", "ann", "bob"}
    assert rows["bob"]["jobs"] == 3
    assert rows["bob"]["gpu_hours"] == 3.0
    assert rows["bob"]["recorded_h"] > 28
    assert rows["bob"]["baseline_h"] > 25
    assert rows["bob"]["changed_h"] < 6
    assert rows[""]["unstarted"] == 0


def test_the_table_has_a_line_per_queue_and_user(recorded, capsys):
    assert main(words(recorded, "--fairshare", "half-life=14d")) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    page = (Path(__file__).parents[3] / "docs/fair-share.md").read_text("utf-8")
    assert f"\n{head}\n" in page
    assert [line.split()[1] for line in lines] == ["*", "ann", "bob"]


def what_if(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


async def test_another_half_life_is_replayed_on_the_nodes_and_queues_of_the_cluster(
    recorded, capsys
):
    folder, url = recorded
    api = ScriptedApi()
    for each in json.loads((folder / "cluster.json").read_text())["items"]:
        api.then(answer({"items": [each]}))
    async with api.serving():
        (folder / "kubeconfig").write_text(api.kubeconfig())
        words = ["--database", url, "--conf", str(folder / "fair.conf"), "-o", "json"]
        words += ["--fairshare", "half-life=14d", "--kubeconfig", str(folder / "kubeconfig")]
        assert await command.run(what_if(*words)) == 0
    assert [seen.path for seen in api.seen] == [NODE.path(), QUEUE.path()]
    rows = {row["user"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["bob"]["baseline_h"] < 6
    assert rows["bob"]["changed_h"] < 6


async def test_a_half_life_needs_records_and_a_configuration():
    with pytest.raises(WrongSettingError, match="--database URL and --conf FILE"):
        await command.run(what_if("--fairshare", "half-life=14d"))


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        (("--fairshare", "days=3"), "half-life"),
        (("--cluster", "/dev/null"), "nodes and queues"),
        (("--database", "mysql://db/x"), "sqlite"),
    ],
)
def test_settings_that_cannot_be_used_are_named(recorded, capsys, more, wrong):
    assert main(words(recorded, *more)) == 2
    assert wrong in capsys.readouterr().err
