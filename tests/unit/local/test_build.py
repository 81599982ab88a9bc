"""Building the parts: who waits, what is said, and that a half is never seen."""

import asyncio
import sys

import pytest

from pumice.local import build, parts
from pumice.local.errors import LocalError
from pumice.local.versions import versions

GO = """#!{python}
import os, pathlib, sys, time
if sys.argv[1] == "env":
    print("go1.99.0"); sys.exit()
if sys.argv[1] == "clean":
    pathlib.Path(os.environ["GOCACHE"], "00", "a").unlink()
    pathlib.Path(os.environ["GOCACHE"], "00").rmdir(); sys.exit()
print("go: downloading x v1", file=sys.stderr)
if os.environ.get("FAIL"):
    print("no space left on device", file=sys.stderr); sys.exit(1)
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
count = pathlib.Path(os.environ["XDG_CACHE_HOME"], "builds")
count.write_text(count.read_text() + "x" if count.exists() else "x")
pathlib.Path(os.environ["GOCACHE"], "00").mkdir(parents=True, exist_ok=True)
pathlib.Path(os.environ["GOCACHE"], "00", "a").touch()
time.sleep(0.3)
program = out / "etcd"
program.write_text("#!/bin/sh\\necho etcd Version: {version}\\n")
program.chmod(0o755)
"""


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """A Go that builds an etcd in no time, and an empty cache."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO.format(python=sys.executable, version=versions().parts["etcd"]))
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(build, "DISK_BYTES", 1)
    import os

    return os.environ


async def test_two_builds_at_once_build_once_and_the_second_says_whom_it_waits_for(environ):
    lines = {"one": [], "two": []}
    async with asyncio.TaskGroup() as tasks:
        builds = [
            tasks.create_task(build.ensure(seen.append, names=["etcd"], environ=environ), name=name)
            for name, seen in lines.items()
        ]
    assert {path for b in builds for path in b.result().values()} == {
        parts.parts_dir("etcd", environ) / "etcd"
    }
    cache = parts.cache_dir(environ)
    assert (cache.parent / "builds").read_text() == "x"
    assert not (cache / "go-build").exists()
    said = [line for seen in lines.values() for line in seen]
    assert sum("about 1 min" in line for line in said) == 1
    assert any("waiting for process" in line for line in said)


async def test_a_failed_build_tells_gos_last_line_and_leaves_nothing_in_place(environ, monkeypatch):
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(LocalError, match="no space left on device"):
        await build.ensure(lambda _: None, names=["etcd"], environ=environ)
    assert not parts.parts_dir("etcd", environ).exists()
    monkeypatch.delenv("FAIL")
    assert await build.ensure(lambda _: None, names=["etcd"], environ=environ)


async def test_too_little_disk_is_said_before_anything_is_built(environ, monkeypatch):
    monkeypatch.setattr(build, "DISK_BYTES", 1 << 60)
    with pytest.raises(LocalError, match=r"has only .* free"):
        await build.ensure(lambda _: None, names=["etcd"], environ=environ)


async def test_the_lock_names_its_holder_and_is_free_afterwards(tmp_path):
    lines = []
    async with build.exclusive(tmp_path / "lock", purpose="builds", report=lines.append):
        waiting = asyncio.Event()

        def heard(line):
            lines.append(line)
            waiting.set()

        async def second():
            async with build.exclusive(tmp_path / "lock", purpose="builds", report=heard):
                return "got it"

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(second(), name="second")
            await asyncio.wait_for(waiting.wait(), 5)
            task.cancel()
    assert "which builds" in lines[0]
    async with build.exclusive(tmp_path / "lock", purpose="builds", report=lines.append):
        assert len(lines) == 1


async def test_a_build_removes_nothing_that_it_has_not_made(environ):
    cache = parts.cache_dir(environ)
    target = parts.parts_dir("etcd", environ)
    mine = [cache / "go-build" / "notes", target / "notes", target / "folder" / "notes"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    await build.ensure(lambda _: None, names=["etcd"], environ=environ)
    assert [path.read_text() for path in mine] == ["precious"] * 3
