"""A data directory: whose files are whose, and that a purge takes only the cluster's own."""

import socket

import pytest

from pumice.cli import main as cli
from pumice.directory import LOCK
from pumice.local import kubeconfig, layout, state
from pumice.local.errors import LocalError
from pumice.local.kubeconfig import KubeconfigEntry


def entries(directory):
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


def test_a_directory_with_a_file_of_its_owner_is_refused_and_left_as_it_was(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert cli.main(["up", "--data-dir", str(tmp_path)]) == 2
    assert "holds thesis.tex, which is not of a local cluster" in capsys.readouterr().err
    assert entries(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("name", ["kubeconfig", "logs", "nats", "pki", "holder.lock"])
def test_a_file_that_is_only_called_like_ours_is_refused_too(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(LocalError, match=f"holds {name}"), state.locked(tmp_path):
        pytest.fail("taken over")
    assert (tmp_path / name).read_text() == "mine"


def test_a_link_in_a_place_of_ours_is_not_written_through(tmp_path):
    mine = tmp_path / "mine.log"
    mine.write_text("mine")
    cluster = tmp_path / "cluster"
    with state.locked(cluster):
        pass
    (cluster / "logs").mkdir()
    (cluster / "logs" / "cache.log").symlink_to(mine)
    with pytest.raises(LocalError, match=r"holds logs/cache\.log"), state.locked(cluster):
        pytest.fail("taken over")


def test_a_folder_that_links_elsewhere_is_neither_entered_nor_removed(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "cache.log").write_text("mine")
    cluster = tmp_path / "cluster"
    with state.locked(cluster):
        pass
    (cluster / "logs").symlink_to(mine)
    purged = layout.purge(cluster)
    assert purged.left == ("logs",)
    assert not purged.gone
    assert (mine / "cache.log").read_text() == "mine"
    assert (cluster / "logs").is_symlink()


def test_a_directory_that_was_there_before_stays_when_it_is_purged(tmp_path, capsys):
    before, made = tmp_path / "before", tmp_path / "made"
    before.mkdir()
    for directory in (before, made):
        with state.locked(directory):
            pass
        assert cli.main(["down", "--purge", "--data-dir", str(directory)]) == 0
    assert before.is_dir()
    assert not made.exists()
    assert f"removed what `pumice up` made in {before}" in capsys.readouterr().out


def test_a_purge_names_what_it_leaves(tmp_path, capsys):
    cluster = tmp_path / "cluster"
    with state.locked(cluster):
        pass
    (cluster / "notes.txt").write_text("mine")
    assert cli.main(["down", "--purge", "--data-dir", str(cluster)]) == 0
    assert "left what is not of it: notes.txt" in capsys.readouterr().out
    assert entries(cluster) == ["notes.txt"]


def test_a_purge_takes_the_sockets_of_an_etcd_that_was_killed_and_no_other(tmp_path, monkeypatch):
    cluster = tmp_path / "cluster"
    with state.locked(cluster):
        pass
    (cluster / "etcd").mkdir()
    monkeypatch.chdir(cluster / "etcd")  # a socket's path is bounded
    for name in ("client.sock:0", "peer.sock:0", "mine.sock"):
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(name)
    assert layout.purge(cluster).left == ("etcd/mine.sock",)
    assert entries(cluster) == ["etcd", "etcd/mine.sock"]


def test_a_cluster_that_runs_is_not_purged(tmp_path, capsys):
    with state.locked(tmp_path / "cluster"):
        assert cli.main(["down", "--purge", "--data-dir", str(tmp_path / "cluster")]) == 1
    assert "runs in" in capsys.readouterr().err
    assert (tmp_path / "cluster" / LOCK).exists()


def test_a_start_that_was_cut_off_can_be_made_again(tmp_path):
    (tmp_path / LOCK).touch()
    with state.locked(tmp_path):
        assert layout.is_signed(tmp_path)


def test_data_for_run_is_put_into_no_folder_of_others(tmp_path, capsys):
    mine = tmp_path / "nats" / "nats-server.conf"
    mine.parent.mkdir()
    mine.write_text("mine")
    words = ["--kubeconfig", str(written(tmp_path / "config")), "--data-dir", str(tmp_path)]
    assert cli.main(["run", *words]) == 2
    assert "holds ca.crt" in capsys.readouterr().err
    assert mine.read_text() == "mine"


def written(path, **changes):
    """Write a kubeconfig as `up` does."""
    authority = path.parent / "ca.crt"
    authority.write_text("certificate")
    kubeconfig.write_kubeconfig(
        path, KubeconfigEntry(server="https://127.0.0.1:1", ca=authority, **changes)
    )
    return path


def test_a_kubeconfig_of_its_owner_is_never_replaced(tmp_path, capsys):
    theirs = written(tmp_path / "config", context="production")
    before = theirs.read_bytes()
    words = ["--data-dir", str(tmp_path / "cluster"), "--kubeconfig-out", str(theirs)]
    assert cli.main(["up", *words]) == 2
    assert f"{theirs} is there already" in capsys.readouterr().err
    assert theirs.read_bytes() == before
    assert not (tmp_path / "cluster").exists()


def test_a_kubeconfig_of_a_local_cluster_is_replaced(tmp_path):
    source, target = written(tmp_path / "new", token="new"), written(tmp_path / "old", token="old")
    kubeconfig.copy_kubeconfig(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_kubeconfig_that_is_a_link_is_not_replaced(tmp_path):
    source, real = written(tmp_path / "new"), written(tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(real)
    with pytest.raises(LocalError, match="is there already"):
        kubeconfig.copy_kubeconfig(source, link)
