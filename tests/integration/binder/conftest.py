"""A desk from which a test plays scheduler: it sends intents and wishes, and reads outcomes."""

import itertools
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pumice.events import CloudEvent, decode
from pumice.local.control_plane import ControlPlane
from shared.bus.nats import NatsBus
from shared.bus.values import FencingToken
from shared.contracts import codec
from shared.contracts.messages import Bind, BindGang, Desired, Evict, Outcome, Victim
from shared.contracts.streams import MIB, streams
from shared.contracts.subjects import Subjects
from tests.support import world
from tests.support.api import Api, ApiError, connect
from tests.support.fleet import Fleet, Service, fleet
from tests.support.nats_servers import admin_bus
from tests.support.wait import until

NODES = ("binder-test-0", "binder-test-1")


class Desk:
    """The scheduler's side of the bus, and the API server as a user sees it."""

    def __init__(self, bus: NatsBus, api: Api, services: Fleet, namespace: str) -> None:
        self.bus = bus
        self.api = api
        self.services = services
        self.namespace = namespace
        self.subjects = Subjects(cluster="local")
        self.streams = streams("local")
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._token: FencingToken | None = None

    async def binder(self, **kwargs) -> Service:
        """Start a binder; its arguments are those of `Fleet.start`.

        There is no cache, and so no Lease that it could wait for.
        """
        return await self.services.start("binder", leader_elect="false", **kwargs)

    def intent_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    async def pods(self, count: int, *, prefix: str = "p") -> list[dict]:
        return [await self.pod(f"{prefix}-{number}") for number in range(count)]

    async def pod(self, name: str, **spec) -> dict:
        return await self.api.create("pods", world.pod(name, group="gang", **spec), self.namespace)

    async def read(self, name: str, plural: str = "pods") -> dict:
        return await self.api.get(plural, self.namespace, name)

    async def absent(self, name: str) -> bool:
        try:
            await self.read(name)
        except ApiError as error:
            return error.status == 404
        return False

    def gang(self, pods: list[dict], *, node: str = NODES[0], **bind) -> BindGang:
        return BindGang(
            id=self.intent_id(),
            cycle=1,
            job=f"{self.namespace}/gang",
            job_uid="gang-uid",
            binds=tuple(
                Bind(pod=key(pod), uid=pod["metadata"]["uid"], node=node, **bind) for pod in pods
            ),
        )

    def eviction(self, pods: list[dict], **intent) -> Evict:
        victims = tuple(Victim(pod=key(pod), uid=pod["metadata"]["uid"]) for pod in pods)
        return Evict(id=self.intent_id(), cycle=1, reason="preempt", victims=victims, **intent)

    async def send(self, intent: BindGang | Evict, *, partition: int = 0) -> None:
        await self.send_raw(codec.encode(intent), partition=partition)

    async def send_raw(self, payload: bytes, *, partition: int = 0) -> int:
        publisher = self.bus.publisher(self.streams.command.name)
        if self._token is None:
            subject = self.subjects.leader("command")
            mark = await publisher.publish(subject, b"{}")
            self._token = FencingToken(
                stream=self.streams.command.name, subject=subject, sequence=mark.sequence
            )
        ack = await publisher.publish(self.subjects.command(partition), payload, fence=self._token)
        return ack.sequence

    async def acknowledged(self, *, partition: int = 0) -> bool:
        """Tell whether COMMAND holds no intent of a partition; the leader's mark stays in it."""
        subject = self.subjects.command(partition)
        return await self.bus.last(self.streams.command.name, subject) is None

    async def outcomes(self, intent: str, *, partition: int = 0) -> list[Outcome]:
        """Return all outcomes of one intent."""
        found = []
        subject = self.subjects.outcome(partition)
        async for message in self.bus.scan(self.streams.outcome.name, subject):
            outcome = codec.decode_outcome(message.payload)
            if outcome.intent == intent:
                found.append(outcome)
        return found

    async def outcome(self, intent: BindGang | Evict, *, deadline_s: float = 15) -> Outcome:
        """Wait for the outcome of an intent; there must be exactly one."""

        def seen() -> str:
            return f"an outcome of {intent.id}\n{self.services.logs()}"

        found = await until(
            lambda: self.outcomes(intent.id), deadline_s=deadline_s, describe=seen()
        )
        assert len(found) == 1
        return found[0]

    async def wish(self, desired: Desired, kind: str, *, deferral_s: int = 0) -> str:
        """Publish what scheduling wants of an object; returns the subject."""
        subject = self.subjects.desired(0, kind, desired.key)
        publisher = self.bus.publisher(self.streams.desired.name)
        headers = codec.deferral(deferral_s)
        await publisher.publish(subject, codec.encode(desired), headers=headers)
        return subject

    async def announced(self, topic: str, name: str) -> CloudEvent:
        """Wait for the CloudEvent of a topic about one object."""
        subject = f"pumice.local.events.{topic}.{self.namespace}"

        async def found() -> CloudEvent | None:
            stored = self.bus.scan(self.streams.events.name, subject)
            events = [decode(message.payload) async for message in stored]
            return next((event for event in events if event.subject.endswith(f"/{name}")), None)

        return await until(found, describe=f"{topic} of {name}")

    async def events(self, name: str) -> list[dict]:
        """Return the Kubernetes Events about one object."""
        selector = f"involvedObject.name={name}"
        return await self.api.items("events", self.namespace, fieldSelector=selector)

    async def event(self, name: str, reason: str) -> dict:
        async def found() -> dict | None:
            events = await self.events(name)
            return next((e for e in events if e["reason"] == reason), None)

        return await until(found, describe=f"event {reason} of {name}")


def key(pod: dict) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def results(outcome: Outcome) -> list[str]:
    return [item.result.value for item in outcome.items]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def binder_nodes(control_plane: ControlPlane) -> None:
    async with connect(control_plane.kubeconfig) as api:
        for name in NODES:
            await api.create("nodes", world.node(name))


@pytest.fixture
async def desk(
    control_plane: ControlPlane, binder_nodes: None, namespace: str, tmp_path: Path
) -> AsyncIterator[Desk]:
    async with (
        admin_bus(control_plane.nats) as bus,
        connect(control_plane.kubeconfig) as api,
        fleet(control_plane, tmp_path) as services,
    ):
        declared = streams("local", state_bytes=64 * MIB)
        await bus.ensure_streams([declared.command, declared.desired, declared.outcome])
        # What a killed binder of another test had not acknowledged would come to this test's.
        await bus.purge(declared.desired.name, f"{Subjects(cluster='local').prefix}.desired.>")
        yield Desk(bus, api, services, namespace)
