"""Where a subscriber that names no server looks for one, and what it says when it loses it."""

import asyncio
import contextlib
import fcntl
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from pumice.directory import LOCK, default_directory
from pumice.events import ClusterGone, Unreachable, find, subscribe
from pumice.events.tls import TlsClient
from pumice.local import state
from tests.support.wait import until


class Notes:
    """What a subscription says of its connection."""

    def __init__(self) -> None:
        self.said: list[tuple[bool, str]] = []

    def __call__(self, *, is_there: bool, words: str) -> None:
        self.said.append((is_there, words))


@pytest.fixture
def at_home(nats_server, tmp_path, monkeypatch) -> Path:
    """A local cluster in the usual place: its files, and a lock that its holder keeps."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    for name in ("PUMICE_NATS", "PUMICE_NATS_USER", "PUMICE_NATS_PASSWORD", "PUMICE_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    directory = default_directory()
    (directory / "nats").mkdir(parents=True)
    users = nats_server.directory / "users.json"
    (directory / "nats" / "users.json").write_bytes(users.read_bytes())
    state.write(directory, state.State(phase="ready", pid=1, nats=nats_server.url))
    return directory


async def read(events, got: list) -> None:
    async with aclosing(events) as stream:
        async for received in stream:
            got.append(received)  # noqa: PERF401 - each as it comes


async def test_without_a_url_the_local_cluster_is_found(publisher, at_home):
    await publisher.all()
    got: list = []
    await read(subscribe(follow=False), got)
    assert [received.sequence for received in got] == list(range(1, publisher.count + 1))
    assert find().directory == at_home


async def test_the_environment_goes_before_a_secret_and_a_secret_before_the_local_cluster(
    publisher, nats_server, at_home, tmp_path
):
    await publisher.all()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "username").write_text("events")
    (secret / "password").write_text(nats_server.passwords["events"] + "\n")
    mounted = find({"XDG_STATE_HOME": str(tmp_path / "home")}, secret=secret)
    assert (mounted.url, mounted.cluster) == ("tls://pumice-nats.pumice-system:4222", "main")
    named = find({"PUMICE_NATS": nats_server.url}, secret=secret)
    assert (named.url, named.user, named.cluster) == (nats_server.url, "events", "local")
    got: list = []
    await read(subscribe(named.url, user=named.user, password=named.password, follow=False), got)
    assert len(got) == publisher.count
    other = find({"PUMICE_NATS": "nats://x", "PUMICE_NATS_PASSWORD": "own"}, secret=secret)
    assert other.password == "own"


async def test_where_no_cluster_is_it_says_what_to_do(tmp_path):
    with pytest.raises(Unreachable, match=r"nothing runs in .*: start it with `pumice up`"):
        find({"XDG_STATE_HOME": str(tmp_path)}, secret=tmp_path)


async def test_a_follower_says_when_the_connection_is_lost_and_when_it_is_back(
    publisher, at_home, nats_server
):
    notes, got = Notes(), []
    with (at_home / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        following = asyncio.create_task(read(subscribe(on_connection=notes), got))
        await publisher.publish_until(got)
        await nats_server.stop()
        await until(lambda: notes.said, describe="the loss is told")
        assert notes.said[0][0] is False
        assert "trying again" in notes.said[0][1]
        await nats_server.start()
        await until(lambda: len(notes.said) == 2, describe="the return is told")
        assert notes.said[1] == (True, f"connected again to {nats_server.url}")
        following.cancel()
        done, _ = await asyncio.wait([following], timeout=10)
        assert done, "a follower ends when it is cancelled"


@pytest.mark.parametrize("operation", ["STREAM.INFO", "CONSUMER.CREATE"])
async def test_a_follower_ends_when_a_library_hides_that_it_was_cancelled(
    at_home, monkeypatch, operation
):
    """As `asyncio.wait_for` does up to Python 3.11 when the answer comes at the same moment."""
    request, asked = TlsClient.request, asyncio.Event()

    async def hiding(client: TlsClient, subject: str, *args: Any, **kwargs: Any) -> Msg:
        answer: Msg = await request(client, subject, *args, **kwargs)
        if operation in subject:
            asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(TlsClient, "request", hiding)
    with (at_home / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        following = asyncio.create_task(read(subscribe(), []))
        await asyncio.wait_for(asked.wait(), 10)
        following.cancel()
        done, _ = await asyncio.wait([following], timeout=5)
    assert done
    assert following.cancelled()


async def test_a_follower_ends_when_its_local_cluster_is_gone(publisher, at_home, nats_server):
    got: list = []
    with (at_home / LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        following = asyncio.create_task(read(subscribe(), got))
        await publisher.publish_until(got)
    await nats_server.stop()
    with pytest.raises(ClusterGone, match=f"the local cluster in {at_home} has ended"):
        await asyncio.wait_for(following, 10)
