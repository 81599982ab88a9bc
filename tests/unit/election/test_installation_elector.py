"""Leases on an API server: made, renewed, respected, taken over, given back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import pytest
import structlog

from pumice.embedded.apiserver.replies import ApiReply
from services.cache.settings import CacheSettings, lease_times
from shared.bus.values import Message, StreamInfo
from shared.contracts import codec
from shared.contracts.leases import ServiceReplica
from shared.contracts.messages import CONTROL, SCHEDULING, ClusterLeaseStatus
from shared.contracts.subjects import Subjects
from shared.election.cluster_lease import LeaseTimes
from shared.election.installation_elector import ClusterLeaseElector, InstallationElector
from shared.kube.client import Kube
from shared.kube.errors import Unreachable, read_status, refusal
from shared.kube.wire import Request
from shared.runtime.errors import Rejected
from shared.runtime.values import Seconds
from tests.sim.wire import core_request
from tests.support.api_server import ApiServer
from tests.support.clock import VirtualClock, settle

SUBJECTS = Subjects(cluster="local")
URL = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases"
NAMES = {SCHEDULING: "volcano", CONTROL: "vc-controller-manager"}
VOLCANO = "node-1_6a9b1d7e-0f43-4b3e-9a0e-6d8a3c1e2f00"


class Way:
    """The way to the API server in this process; counts, breaks and refuses."""

    host = "embedded"

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.asked: list[str] = []
        self.away = False
        self.unread = False
        """Whether the answers to changes stay unread."""
        self.refused: Callable[[Request], str] = lambda _: ""

    async def exchange(self, request: Request) -> bytes:
        self.asked.append(request.doing)
        await asyncio.sleep(0)
        if self.away:
            raise Unreachable(f"{request.doing}: connection refused")
        if reason := self.refused(request):
            body = msgspec.json.encode({"kind": "Status", "code": 403, "message": reason})
            raise refusal(request.doing, read_status(403, body), {})
        answer = self.server.handle(core_request(request))
        assert isinstance(answer, ApiReply)
        if self.unread and request.method != "GET":
            await asyncio.Event().wait()
        if answer.status >= 300:
            raise refusal(request.doing, read_status(answer.status, answer.body), answer.headers)
        return answer.body

    async def open(self, request: Request) -> Any:
        raise AssertionError(f"nothing is watched: {request.doing}")

    async def close(self) -> None:
        self.asked.append("close")


class Bus:
    """What the electors ask of the bus: when it was made, and who is on it."""

    def __init__(self, created: str) -> None:
        self.created = created
        self.members: list[ServiceReplica] = []

    async def info(self, stream: str) -> StreamInfo:
        return StreamInfo(created=self.created, first_seq=1, last_seq=1, messages=1, bytes=1)

    async def snapshot(self, stream: str, subjects: Any) -> list[Message]:
        return [
            Message(
                subject=SUBJECTS.member(member.service, member.instance),
                sequence=number,
                payload=codec.encode(member),
                time=0.0,
            )
            for number, member in enumerate(self.members, 1)
        ]


class Installation:
    """The electors of one cache, on a bus of its own."""

    def __init__(self, scene: "Scene", name: str, bus: Bus) -> None:
        self.way = Way(scene.server)
        self.bus = bus
        self.changes = 0
        common = {"instance": f"cache-{name}", "clock": scene.clock, "log": structlog.get_logger()}
        kube = Kube(transport=self.way)
        electors = {
            role: ClusterLeaseElector(
                kube,
                namespace="volcano-system",
                name=lease,
                times=LeaseTimes(),
                installation=f"of-{name}",
                **common,
            )
            for role, lease in NAMES.items()
        }
        self.electors = InstallationElector(
            electors, kube, bus, stream="LEASE", subjects=SUBJECTS, **common
        )

    def status(self, role: str = SCHEDULING) -> ClusterLeaseStatus:
        statuses = self.electors.statuses()
        assert isinstance(statuses, dict)
        return statuses[role]

    def changed(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def leading(self) -> AsyncIterator["Installation"]:
        task = asyncio.create_task(self.electors.keep(changed=self.changed))
        await settle()
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])


class Scene:
    """One API server, and whoever wants its Leases."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        numbers = count(1)
        self.server = ApiServer(now=self.clock.now, uids=lambda: f"uid-{next(numbers)}", crds=[])
        self.kubectl = Kube(transport=Way(self.server))

    def installation(self, name: str, bus: Bus | None = None) -> Installation:
        return Installation(self, name, bus or Bus(f"2026-08-20T10:00:00.{name}Z"))

    async def lease(self, role: str = SCHEDULING) -> dict:
        return msgspec.json.decode(await self.kubectl.request("GET", f"{URL}/{NAMES[role]}"))

    async def volcano_holds(self, renewed: str = "2031-01-01T00:00:00.000000Z") -> None:
        """Write what client-go writes when Volcano's scheduler has got the Lease."""
        spec = {
            "holderIdentity": VOLCANO,
            "leaseDurationSeconds": 15,
            "acquireTime": "2031-01-01T00:00:00.000000Z",
            "renewTime": renewed,
            "leaseTransitions": 0,
        }
        try:
            found = await self.lease()
        except Exception:  # noqa: BLE001 - there is none yet
            namespace = {"metadata": {"name": "volcano-system"}}
            await self.kubectl.request("POST", "/api/v1/namespaces", body=namespace)
            body = {"metadata": {"name": "volcano"}, "spec": spec}
            await self.kubectl.request("POST", URL, body=body)
        else:
            body = {**found, "spec": spec}
            await self.kubectl.request("PUT", f"{URL}/volcano", body=body)

    async def volcano_gives_back(self) -> None:
        found = await self.lease()
        found["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        await self.kubectl.request("PUT", f"{URL}/volcano", body=found)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_both_leases_are_made_with_their_namespace_at_once(scene):
    async with scene.installation("a").leading() as ours:
        for role in NAMES:
            assert ours.status(role).left_s == 10
            spec = (await scene.lease(role))["spec"]
            assert spec["holderIdentity"].startswith("pumice-local-")
            assert spec["leaseDurationSeconds"] == 15
            assert spec["leaseTransitions"] == 0
        assert len(ours.way.asked) <= 8
        assert ours.changes == len(NAMES)


async def test_a_lease_at_rest_costs_one_request_in_five_seconds(scene):
    async with scene.installation("a").leading() as ours:
        before, first = len(ours.way.asked), await scene.lease()
        await scene.clock.advance(60)
        assert len(ours.way.asked) - before == 2 * 12
        assert ours.status().left_s >= 5
        last = await scene.lease()
        assert last["spec"]["renewTime"] > first["spec"]["renewTime"]
        assert last["spec"]["acquireTime"] == first["spec"]["acquireTime"]
        assert ours.changes == len(NAMES), "nothing has changed that others have to know at once"


async def test_the_second_installation_waits_says_for_whom_and_goes_on_after_its_death(scene):
    async with scene.installation("a").leading() as first:
        term = first.status().term
        async with scene.installation("b").leading() as second:
            await scene.clock.advance(60)
            assert second.status().left_s == 0
            holder = (await scene.lease())["spec"]["holderIdentity"]
            assert second.status().holder == f"{holder} (cache-a)"
    async with second.leading():  # the first is dead from here on
        await scene.clock.advance(14)
        assert second.status().left_s == 0
        await scene.clock.advance(4)
        assert second.status().left_s > 0
        assert second.status().term != term
        assert (await scene.lease())["spec"]["leaseTransitions"] == 1
        async with first.leading():
            assert first.status().left_s == 0, "what was relied on is not ours any more"
            assert first.status().holder


async def test_another_replica_on_the_same_bus_goes_on_at_once_in_the_same_term(scene):
    bus = Bus("2026-08-20T10:00:00Z")
    async with scene.installation("a", bus).leading() as first:
        term = first.status().term
    async with scene.installation("b", bus).leading() as standby:
        assert standby.status().left_s == 10
        assert standby.status().term == term


async def test_a_bus_that_lost_its_data_does_not_lock_its_installation_out(scene):
    bus = Bus("2026-08-20T10:00:00Z")
    ours = scene.installation("a", bus)
    async with ours.leading():
        term = ours.status().term
    bus.created = "2026-08-20T11:00:00Z"
    async with ours.leading():
        assert ours.status().left_s == 10
        assert ours.status().term != term, "what the bus forgot must not come back"


async def test_a_replica_that_never_led_knows_the_name_of_the_bus_that_lost_its_data(scene):
    bus = Bus("2026-08-20T10:00:00Z")
    leader, standby = scene.installation("a", bus), scene.installation("b", bus)
    noting = asyncio.create_task(standby.electors.run())
    async with leader.leading():
        term = leader.status().term
    bus.created = "2026-08-20T11:00:00Z"
    async with standby.leading():
        assert standby.status().left_s == 10
        assert standby.status().term != term
    noting.cancel()


async def test_volcano_is_respected_for_as_long_as_it_renews(scene):
    await scene.volcano_holds()
    async with scene.installation("a").leading() as ours:
        for second in range(30):
            await scene.clock.advance(2)
            await scene.volcano_holds(f"2031-01-01T00:00:{second:02d}.000000Z")
            assert ours.status().holder == VOLCANO
            assert ours.status().left_s == 0
        assert ours.status(CONTROL).left_s > 0, "the other Lease is another matter"
        await scene.clock.advance(18)
        assert ours.status().left_s > 0


async def test_what_volcano_gives_back_is_ours_at_the_next_look(scene):
    await scene.volcano_holds()
    async with scene.installation("a").leading() as ours:
        assert ours.status().holder == VOLCANO
        await scene.volcano_gives_back()
        await scene.clock.advance(2)
        assert ours.status().left_s > 0
        assert (await scene.lease())["spec"]["leaseTransitions"] == 1


async def test_a_lease_that_another_took_in_the_meantime_is_lost_at_the_next_renewal(scene):
    async with scene.installation("a").leading() as ours:
        await scene.volcano_holds()
        await scene.clock.advance(6)
        assert ours.status().holder == VOLCANO
        assert ours.status().left_s == 0


async def test_without_an_api_server_a_hold_ends_by_itself_and_comes_back(scene):
    async with scene.installation("a").leading() as ours:
        term = ours.status().term
        ours.way.away = True
        await scene.clock.advance(9)
        assert 0 < ours.status().left_s <= 1
        await scene.clock.advance(1.1)
        assert ours.status().left_s == 0
        assert ours.status().holder == ""
        assert "connection refused" in ours.status().reason
        ours.way.away = False
        await scene.clock.advance(1)
        assert ours.status().left_s > 0
        assert ours.status().term == term, "nobody else had it"


async def test_a_right_that_is_missing_is_named(scene):
    ours = scene.installation("a")
    ours.way.refused = lambda request: "may not create leases" if request.method == "POST" else ""
    async with ours.leading():
        assert "may not create leases" in ours.status().reason
        ours.way.refused = lambda _: ""
        await scene.clock.advance(1)
        assert ours.status().left_s > 0


async def test_the_last_cache_to_end_gives_both_back(scene):
    bus = Bus("2026-08-20T10:00:00Z")
    async with scene.installation("a", bus).leading() as ours:
        pass
    bus.members = [member("cache", "cache-a"), member("binder", "binder-a", ends=True)]
    await ours.electors.end()
    for role in NAMES:
        lease = await scene.lease(role)
        assert "holderIdentity" not in lease["spec"]
        annotations = lease["metadata"].get("annotations", {})
        assert not {"pumice.dev/held-by", "pumice.dev/installation"} & annotations.keys()
    assert ours.way.asked[-1] == "close"
    async with scene.installation("b").leading() as other:
        assert other.status().left_s > 0


@pytest.mark.parametrize("lives_s", [0, 6])
async def test_a_lease_whose_acquisition_or_renewal_was_cut_short_is_given_back(scene, lives_s):
    bus = Bus("2026-08-20T10:00:00Z")
    namespace = {"metadata": {"name": "volcano-system"}}
    await scene.kubectl.request("POST", "/api/v1/namespaces", body=namespace)
    ours = scene.installation("a", bus)
    ours.way.unread = lives_s == 0
    async with ours.leading():
        ours.way.unread = True
        await scene.clock.advance(lives_s)
    assert (await scene.lease())["spec"]["holderIdentity"].startswith("pumice-local-")
    ours.way.unread = False
    await ours.electors.end()
    assert "holderIdentity" not in (await scene.lease())["spec"]


@pytest.mark.parametrize("service", ["binder", "cache"])
async def test_a_lease_that_other_processes_need_is_kept(scene, service):
    bus = Bus("2026-08-20T10:00:00Z")
    async with scene.installation("a", bus).leading() as ours:
        pass
    bus.members = [member(service, "b")]
    ending = asyncio.create_task(ours.electors.end())
    await scene.clock.advance(2)
    await ending
    assert (await scene.lease())["spec"]["holderIdentity"].startswith("pumice-local-")


def member(service: str, instance: str, *, ends: bool = False) -> ServiceReplica:
    return ServiceReplica(
        service=service, instance=instance, accepts=() if ends else (1,), time=0.0
    )


def test_times_that_contradict_are_refused():
    wrong = CacheSettings(leader_elect_renew_deadline=Seconds(15.0))
    with pytest.raises(Rejected, match="longer than the one after it"):
        lease_times(wrong)
    assert lease_times(CacheSettings()) == LeaseTimes()
