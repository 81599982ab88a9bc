"""Messages of every kind on every subject, taken from the streams of a running installation."""

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import Iterator

from shared.bus.nats import NatsBus
from shared.bus.seal import Seal
from shared.bus.values import Batch, Message
from shared.contracts.codec import unpack
from shared.contracts.messages import Fact, Op
from shared.contracts.streams import all_streams, streams
from shared.contracts.subjects import Subjects
from tests.upgrade.former import CLUSTER

FEW = 3
"""Messages that are kept of a class at most; each has fields that the ones before have not."""
_COMMAND = streams(CLUSTER).command.name


def class_of(subject: str, payload: dict) -> str:
    """Return what a message is called here: its subject without names, and its kind of content."""
    stream, *rest = subject.removeprefix(Subjects(cluster=CLUSTER).prefix + ".").split(".")
    if stream == "state" and rest[0] not in ("marker", "leader"):
        return f"state.{rest[0]} {payload.get('op')}"
    if stream == "events":
        return f"events.{'.'.join(rest[:2])}"
    if stream == "waiting":
        return stream
    if stream == "lease":
        return f"lease.{rest[0].split('-')[0]}"
    if stream in ("command", "desired", "outcome") and rest[0] not in ("leader", "poison"):
        results = {item["result"] for item in payload.get("items", [])}
        return " ".join((stream, *filter(None, [payload.get("type")]), *sorted(results)))
    return f"{stream}.{rest[0]}"


def fields(value: object, at: str = "") -> Iterator[str]:
    """Yield the path of each field in a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{at}.{key}"
            yield from fields(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner, f"{at}[]")


class Samples:
    """Keeps a few messages of each class."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._kept: dict[str, list[Message]] = defaultdict(list)
        self._fields: dict[str, set[str]] = defaultdict(set)

    @property
    def classes(self) -> set[str]:
        """Return the classes of which there is a message."""
        return set(self._kept)

    def take(self, message: Message) -> None:
        """Keep a message if it shows something new of its class."""
        payload = json.loads(unpack(message.payload)) if message.payload else {}
        name = class_of(message.subject, payload)
        shown = set(fields(self._opened(payload)))
        new = shown - self._fields[name]
        if len(self._kept[name]) < FEW and (new or not self._kept[name]):
            self._kept[name].append(message)
            self._fields[name] |= shown

    def _opened(self, payload: dict) -> dict:
        body = payload.get("body")
        if not (isinstance(body, dict) and "sealed" in body):
            return payload
        given = {key: payload[key] for key in ("kind", "key", "uid", "rv")}
        fact = Fact(**given, op=Op.PUT, body=json.dumps(body).replace(" ", "").encode())
        return payload | {"body": json.loads(bytes(self._seal.open(fact).body))}

    def lines(self) -> list[str]:
        """Return the messages as lines of JSON, in the order of their classes."""
        return [_line(name, message) for name in sorted(self._kept) for message in self._kept[name]]

    async def follow(self, bus: NatsBus) -> None:
        """Take what comes on all streams but COMMAND, which has one reader alone; for ever."""
        async with asyncio.TaskGroup() as tasks:
            for spec in all_streams(streams(CLUSTER)):
                if spec.name != _COMMAND:
                    reading = self._follow(bus, spec.name, spec.subjects)
                    tasks.create_task(reading, name=spec.name)

    async def _follow(self, bus: NatsBus, stream: str, subjects: tuple[str, ...]) -> None:
        async for item in bus.follow(stream, subjects):
            if isinstance(item, Batch):
                for message in item.messages:
                    self.take(message)

    async def take_commands(self, bus: NatsBus) -> set[str]:
        """Take what waits on COMMAND; return the classes of all commands so far."""
        async for message in bus.scan(_COMMAND, f"{Subjects(cluster=CLUSTER).prefix}.command.*"):
            self.take(message)
        return {name for name in self.classes if name.startswith("command")}


def _line(name: str, message: Message) -> str:
    try:
        payload = {"text": message.payload.decode()}
    except UnicodeDecodeError:
        payload = {"base64": base64.b64encode(message.payload).decode()}
    shown = {"class": name, "subject": message.subject, **payload}
    if message.headers:
        shown["headers"] = message.headers
    return json.dumps(shown)
