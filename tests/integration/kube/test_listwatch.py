"""List/watch on the real API server: streamed and paged state, a lost kind, a killed server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from shared.api.kinds import CRD, POD, Kind
from shared.kube.client import Kube, Selection
from shared.kube.config import connect
from shared.kube.decode import Changed, ChangeOp
from shared.kube.listwatch import Item, Listed, ListWatch, ListWatchTimes, Unavailable
from tests.support.roles import Accounts
from tests.support.world import pod

TIMES = ListWatchTimes(absent_retry_s=0.2)


@asynccontextmanager
async def watching(watch: ListWatch) -> AsyncIterator[AsyncIterator[Item]]:
    async with asyncio.timeout(40), aclosing(watch.items()) as items:
        yield items


async def first(items: AsyncIterator[Item], kind: type) -> Item:
    async for item in items:
        if isinstance(item, kind):
            return item
    raise AssertionError("a list/watch never ends")


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "paged"])
async def test_the_state_and_each_change_arrive(kube: Kube, namespace: str, streams: bool) -> None:
    for index in range(3):
        await kube.create(POD, namespace, pod(f"p{index}"))
    watch = ListWatch(kube, POD, namespace=namespace, times=TIMES)
    watch._can_stream = streams
    async with watching(watch) as items:
        listed = await anext(items)
        assert isinstance(listed, Listed)
        assert sorted(p.metadata.name for p in listed.items) == ["p0", "p1", "p2"]
        gone = listed.items[0].metadata
        await kube.patch(
            POD, namespace, gone.name, {"metadata": {"labels": {"a": "b"}}}, uid=gone.uid
        )
        changed = await first(items, Changed)
        assert isinstance(changed, Changed)
        assert dict(changed.object.metadata.labels) == {"a": "b"}
        await kube.delete(POD, namespace, gone.name, uid=gone.uid, grace_s=0)
        async for item in items:
            if isinstance(item, Changed) and item.op is ChangeOp.DELETED:
                assert item.object.metadata.uid == gone.uid
                break
    assert watch._can_stream is streams


async def test_more_objects_than_a_page_are_listed_once_each(kube: Kube, namespace: str) -> None:
    async with asyncio.TaskGroup() as group:
        for index in range(30):
            group.create_task(kube.create(POD, namespace, pod(f"p{index}")))
    selection = Selection(namespace=namespace)
    pages = [page async for page in kube.pages(POD, selection, 7)]
    names = [p.metadata.name for page in pages for p in page.items]
    assert len(pages) == 5
    assert sorted(names) == sorted({f"p{index}" for index in range(30)})
    assert len({page.resource_version for page in pages}) == 1


async def test_a_kind_comes_and_goes_with_its_definition(kube: Kube, namespace: str) -> None:
    thing = Kind(kind="Thing", group=f"{namespace}.example.com", plural="things", type=POD.type)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{thing.group}"},
        "spec": {
            "group": thing.group,
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    async with watching(ListWatch(kube, thing, times=TIMES)) as items:
        absent = await anext(items)
        assert isinstance(absent, Unavailable)
        assert absent.is_absent
        await kube.create(CRD, "", body)
        listed = await first(items, Listed)
        assert isinstance(listed, Listed)
        assert listed.items == []
        found = next(c for c in await names(kube, CRD) if c[0] == body["metadata"]["name"])  # type: ignore[index]
        await kube.delete(CRD, "", found[0], uid=found[1])
        async for item in items:
            if isinstance(item, Unavailable) and item.is_absent:
                break


async def names(kube: Kube, kind: Kind) -> list[tuple[str, str]]:
    """Return name and uid of all objects of a kind without a view."""
    listing = await kube.list(
        Kind(kind=kind.kind, group=kind.group, plural=kind.plural, namespaced=False, type=POD.type)
    )
    heads = [item.metadata for item in (*listing.items, *listing.malformed)]
    return [(head.name, head.uid) for head in heads]


async def test_a_missing_right_names_verb_and_kind(accounts: Accounts, tmp_path: Path) -> None:
    await accounts.create("nobody")
    file = tmp_path / "kubeconfig"
    file.write_text(accounts.kubeconfig(token=await accounts.token("nobody")))
    async with (
        await connect(str(file), user_agent="nobody") as without_rights,
        watching(ListWatch(without_rights, POD, times=TIMES)) as items,
    ):
        denied = await anext(items)
    assert isinstance(denied, Unavailable)
    assert denied.status == 403
    assert 'cannot list resource "pods"' in denied.message or "cannot watch" in denied.message


@pytest.mark.timeout(120)
async def test_a_killed_api_server_is_waited_for_and_nothing_is_missed(tmp_path: Path) -> None:
    async with (
        ControlPlane(ControlPlaneOptions(directory=tmp_path), parts.require()) as plane,
        await connect(str(plane.kubeconfig), user_agent="t") as kube,
        watching(ListWatch(kube, POD, times=TIMES)) as items,
    ):
        await first(items, Listed)
        await kube.create(POD, "default", pod("before"))
        seen = set()
        await plane.restart("kube-apiserver", kill=True)
        await kube.create(POD, "default", pod("after"))
        async for item in items:
            match item:
                case Listed(items=listed):
                    seen |= {p.metadata.name for p in listed}
                case Changed(object=changed):
                    seen.add(changed.metadata.name)
            if seen >= {"before", "after"}:
                break
        assert seen >= {"before", "after"}
