"""Whatever lies in a data directory and is not of the cluster survives `up` and `down --purge`.

The data directory is a real one, left by a cluster on the embedded API server that ran and was
stopped. Each example gets a copy of it, with things of a user in drawn places.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.cli import main as cli
from pumice.local import layout, state
from pumice.local.errors import LocalError

pytestmark = pytest.mark.timeout(300)

PLACES = (
    "",
    "logs",
    "pki",
    "nats",
    "nats/jetstream",
    "nats/jetstream/jetstream/$G/streams/PUMICE_local_EVENTS/msgs",
    "etcd/member",
    "mine",
    "mine/logs",
)
NAMES = st.one_of(
    st.sampled_from(
        [
            "notes",
            "cache.log.1",
            "kubeconfig.old",
            ".profile",
            "holder.lock~",
            "1.blk.bak",
            "logs =",
        ]
    ),
    st.text(
        st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8
    ).filter(lambda name: name not in {".", ".."} and len(name.encode()) < 200),
)
KINDS = st.sampled_from(["file", "folder", "link to a file", "link to a folder", "pipe"])


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """The data directory of a cluster that ran and was stopped."""
    directory = tmp_path_factory.mktemp("ran") / "cluster"
    for words in (["up", "--api", "embedded", "--nodes", "1"], ["down"]):
        subprocess.run(
            [sys.executable, "-m", "pumice", *words, "--data-dir", directory],
            check=True,
            timeout=200,
        )
    return directory


def picture(top):
    """Return everything below a directory: type, permissions and content, by path."""
    seen = {}
    for path in sorted(top.rglob("*")):
        mode = path.lstat().st_mode
        content = None
        if stat.S_ISLNK(mode):
            content = path.readlink()
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        seen[path.relative_to(top).as_posix()] = (mode, content)
    return seen


def put(directory, beside, place, name, kind):
    """Put one thing of the user there; returns its path, None when the place is taken."""
    path = directory / place / name
    if os.path.lexists(path) or any(parent.is_file() for parent in path.parents):
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "file":
            path.write_bytes(name.encode())
        case "folder":
            path.mkdir()
            (path / "cache.log").write_text("mine")
        case "link to a file":
            path.symlink_to(beside / "file")
        case "link to a folder":
            path.symlink_to(beside / "folder")
        case "pipe":
            os.mkfifo(path)
    return path


def test_what_a_stopped_cluster_leaves_is_all_known_to_be_its_own(left, tmp_path):
    assert list(layout.foreign(left)) == []
    copy = shutil.copytree(left, tmp_path / "cluster")
    assert layout.purge(copy) == layout.Purged(gone=True, left=())
    assert not copy.exists()


@given(
    things=st.lists(st.tuples(st.sampled_from(PLACES), NAMES, KINDS), min_size=1, max_size=6),
)
def test_a_purge_leaves_all_that_is_not_of_the_cluster(left, tmp_path_factory, things):
    top = tmp_path_factory.mktemp("home")
    directory = shutil.copytree(left, top / "cluster")
    beside = top / "beside"
    (beside / "folder" / "logs").mkdir(parents=True)
    (beside / "file").write_text("mine")
    (beside / "folder" / "logs" / "cache.log").write_text("mine")
    before = picture(directory)
    put_there = [put(directory, beside, *thing) for thing in things]
    with_them = picture(top)
    mine = {path for path in with_them if path.removeprefix("cluster/") not in before}
    mine.discard("cluster")

    if any(path is not None for path in put_there) and list(layout.foreign(directory)):
        with pytest.raises(LocalError, match="not of a local cluster"), state.locked(directory):
            pytest.fail("taken over")
        assert picture(top) == with_them

    assert cli.main(["down", "--purge", "--data-dir", str(directory)]) == 0
    after = picture(top)
    assert {path: after.get(path) for path in mine} == {path: with_them[path] for path in mine}
    ours = {path for path in after if path.startswith("cluster/")} - mine
    needed = {str(parent) for path in mine for parent in Path(path).parents}
    assert ours <= needed


@given(things=st.lists(st.tuples(st.just(""), NAMES, KINDS), min_size=1, max_size=4))
def test_a_folder_of_a_user_is_refused_and_stays_as_it_is(tmp_path_factory, things):
    top = tmp_path_factory.mktemp("home")
    beside = top / "beside"
    (beside / "folder").mkdir(parents=True)
    (beside / "file").write_text("mine")
    directory = top / "theirs"
    directory.mkdir()
    for thing in things:
        put(directory, beside, *thing)
    before = picture(top)
    for words in (["up", "--api", "embedded"], ["down", "--purge"]):
        assert cli.main([*words, "--data-dir", str(directory)]) != 0
        assert picture(top) == before
