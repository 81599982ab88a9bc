"""Fake machines from flags and from a file, refused with the place when they cannot be."""

import pytest

from pumice.cli import main as cli
from pumice.local.errors import WrongSettingError
from pumice.local.fleet import Fleet, NodeShape, hyper_node_manifest, node_manifests, racks, read


def test_a_file_describes_machines_of_several_kinds(tmp_path):
    file = tmp_path / "nodes.yaml"
    file.write_text(
        """
nodes:
  - {prefix: gpu, count: 2, cpu: "96", gpus: 8, resources: {rdma/hca: "4"}, labels: {pool: a},
     taints: [{key: k, effect: NoSchedule}]}
hyperNodes:
  - {name: rack, nodes: [gpu-0, gpu-1]}
  - {name: spine, tier: 2, hyperNodes: [rack]}
"""
    )
    fleet = read(file)
    first = next(iter(node_manifests(fleet.nodes[0])))
    assert first["metadata"]["name"] == "gpu-0"
    assert first["metadata"]["labels"]["pool"] == "a"
    assert first["spec"]["taints"][0]["key"] == "k"
    assert first["status"]["allocatable"] == {
        "cpu": "96", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8", "rdma/hca": "4",
    }  # fmt: skip
    assert hyper_node_manifest(fleet.hyper_nodes[1])["spec"] == {
        "tier": 2,
        "members": [{"type": "HyperNode", "selector": {"exactMatch": {"name": "rack"}}}],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: [{coutn: 3}]", "unknown field `coutn`"),
        ("nodes: [{count: many}]", "count"),
        ("nodes: [{count: -1}]", "must not be negative"),
        ("nodes: [{cpu: lots}]", "lots"),
        ("nodes: [{prefix: A_B}]", "cannot begin the name"),
        ("nodes: [{cpu: '1'}, {cpu: '2'}]", "two kinds of nodes have the prefix 'node'"),
        ("hyperNodes: [{name: r, nodes: [node-9]}]", "there is no node 'node-9'"),
        ("hyperNodes: [{name: r, tier: 2, hyperNodes: [x]}]", "there is no HyperNode 'x'"),
        ("hyperNodes: [{name: r}]", "needs either nodes or hyperNodes"),
        (
            "hyperNodes: [{name: a, hyperNodes: [b]}, {name: b, hyperNodes: [a]}]",
            "of tier 1 cannot hold 'b' of tier 1",
        ),
        ("nodes: [", "nodes.yaml"),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_the_place(tmp_path, text, said):
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    with pytest.raises(WrongSettingError) as refused:
        read(file)
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"--nodes-file {file}: ")
    assert "\n" not in str(refused.value)


def test_racks_hold_all_nodes_and_the_spine_all_racks():
    shape = NodeShape(count=5)
    *low, top = racks((shape,), 2)
    assert [rack.nodes for rack in low] == [
        ("node-0", "node-1"), ("node-2", "node-3"), ("node-4",),
    ]  # fmt: skip
    assert top.hyper_nodes == tuple(rack.name for rack in low)
    assert racks((), 2) == ()
    assert Fleet(nodes=(shape,)).count == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes-file", "/nowhere"], "--nodes-file: there is no file /nowhere"),
        (["--nodes-file", "/dev/null", "--cpu", "4"], "--cpu: --nodes-file says it"),
        (["--scheduler-conf", "/nowhere"], "--scheduler-conf: there is no file /nowhere"),
        (["--log-dir", "/proc/nope"], "--log-dir: cannot use /proc/nope"),
        (["--schedule-periodd=1s"], "did you mean --schedule-period?"),
        (["--schedule-period=soon"], "--schedule-period"),
        (["--ndoes", "3"], "did you mean --nodes?"),
    ],
)
def test_what_up_is_given_is_checked_before_anything_starts(tmp_path, capsys, words, said):
    assert cli.main(["up", *words, "--data-dir", str(tmp_path / "cluster")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize("text", ['actions: "enqueue, alocate"\ntiers: []\n', "actions: ["])
def test_a_configuration_that_the_scheduler_would_refuse_is_refused_first(tmp_path, capsys, text):
    conf = tmp_path / "conf.yaml"
    conf.write_text(text)
    for command in ("up", "run"):
        words = [command, "--scheduler-conf", str(conf), "--data-dir", str(tmp_path / "cluster")]
        assert cli.main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: --scheduler-conf {conf}: ")
        assert error.count("\n") == 1
    assert not (tmp_path / "cluster").exists()


def test_flags_of_another_command_are_named_as_such(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["up", "--nats", "nats://x"])
    assert ended.value.code == 2
    assert "`pumice run` takes this flag" in capsys.readouterr().err


def test_the_data_of_one_api_server_is_not_taken_for_anothers(tmp_path, capsys):
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    (cluster / "holder.lock").touch()
    from pumice.local import state

    with state.locked(cluster):
        pass
    (cluster / "objects.jsonl").touch()
    assert cli.main(["up", "--api", "real", "--data-dir", str(cluster)]) == 2
    assert "is on the embedded API server" in capsys.readouterr().err
