"""Tokens that rotate in the middle of a run, on the real API server."""

import asyncio
import stat
from contextlib import aclosing
from pathlib import Path

import msgspec

from shared.api.kinds import POD
from shared.kube.client import Kube, Selection
from shared.kube.config import connect
from shared.kube.decode import Changed
from shared.kube.listwatch import Item, Listed, ListWatch, ListWatchTimes, Unavailable
from shared.runtime.errors import Retryable
from tests.support.roles import Accounts
from tests.support.wait import until
from tests.support.world import pod


async def test_a_rotated_token_file_carries_on_in_the_middle_of_a_run(
    accounts: Accounts, namespace: str, tmp_path: Path
) -> None:
    selection = Selection(namespace=namespace)
    token = tmp_path / "token"
    for name in ("first", "second"):
        await accounts.create(name, role="view")
    token.write_text(await accounts.token("first") + "\n")
    file = tmp_path / "kubeconfig"
    file.write_text(accounts.kubeconfig(tokenFile="token"))
    async with await connect(str(file), user_agent="t") as viewer:
        await viewer.list(POD, selection)
        await accounts.delete("first")
        await until(
            lambda: is_refused(viewer, selection),
            deadline_s=30,
            every_s=0.25,
            describe="the end of the first token (the server keeps its opinion for 10 s)",
        )
        token.write_text(await accounts.token("second") + "\n")
        await viewer.list(POD, selection)


async def is_refused(kube: Kube, selection: Selection) -> bool:
    try:
        await kube.list(POD, selection)
    except Retryable as exc:
        return "Unauthorized" in str(exc)
    return False


async def test_a_watch_goes_on_when_a_plugin_hands_out_a_new_token(
    accounts: Accounts, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    """The plugin's first token dies with its account; the 401 makes us ask the plugin again."""
    for name in ("first", "second"):
        await accounts.create(name, role="view")
    runs = tmp_path / "runs"
    plugin = tmp_path / "plugin"
    plugin.write_text(f'#!/bin/sh\necho run >> "{runs}"\ncat "{tmp_path}/credential"\n')
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)

    async def hand_out(name: str) -> None:
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": await accounts.token(name)},
        }
        (tmp_path / "credential").write_bytes(msgspec.json.encode(credential))

    await hand_out("first")
    file = tmp_path / "kubeconfig"
    section = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "interactiveMode": "Never",
    }
    file.write_text(accounts.kubeconfig(exec=section))
    seen: list[Item] = []

    async def follow(viewer: Kube) -> None:
        times = ListWatchTimes(watch_least_s=1, watch_most_s=1)
        watch = ListWatch(viewer, POD, namespace=namespace, times=times)
        async with aclosing(watch.items()) as items:
            async for item in items:
                seen.append(item)  # noqa: PERF401 - others read it meanwhile

    async with await connect(str(file), user_agent="t") as viewer, asyncio.TaskGroup() as group:
        following = group.create_task(follow(viewer))
        await until(lambda: seen, describe="the list")
        await hand_out("second")
        await accounts.delete("first")
        await until(
            lambda: len(runs.read_text().splitlines()) > 1,
            deadline_s=40,
            describe="the plugin's second run",
        )
        await kube.create(POD, namespace, pod("after"))
        await until(
            lambda: any(isinstance(item, Changed) for item in seen), describe="the pod in the watch"
        )
        following.cancel()
    assert [type(item) for item in seen if isinstance(item, Unavailable | Listed)] == [Listed]
