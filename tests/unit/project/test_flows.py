"""The three main flows: how many types carry an object, and how deep the calls are.

The simulation runs all services in one process against
an API server and a NATS server in memory; the request of a bind goes over a real socket, too.
docs/tour.md follows the same paths.

A flow is a list of hand-overs: functions that give the object to another task, queue or process. At
the first call of each with the object among its arguments, `FlowTrace` notes the stack.

- Frames: the functions of `services`, `shared` and `pumice` on such a stack, from the first one
  that has the object in a local variable to the hand-over. What runs these functions (supervisor,
  leader election, the loop) is not part of the flow. The frames of a flow are those of its deepest
  stack.
- Types: the classes whose instances these frames have in a local variable, alone or in a list, that
  contain the object's name and are made for each object: structs, named tuples, and `Delivery`. An
  instance that is a field of another one in the same frame does not count: it is no hop. The parts
  of a service (queues, stores, clients) and its records live longer than an event and do not count.
"""

import asyncio
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec
import pytest

from services.controller.adapters.records import JobRecord
from shared.bus.puller import Delivery
from shared.contracts.codec import unpack
from shared.contracts.versions import ContractError
from tests.sim import simulation, workloads
from tests.sim.simulation import Simulation, simulate
from tests.support.scripted_api import ScriptedApi, client_of, status

ROOT = Path(__file__).parents[3]
PACKAGES = ("services.", "shared.", "pumice.")
OURS = tuple(f"{ROOT / name.rstrip('.')}/" for name in PACKAGES)
_DEEPEST = 5


class FlowTrace:
    """Notes the stacks of the hand-overs `points` of the object `name`.

    A point is "module:qualified name", with "(text)" behind it if an argument has to contain that.
    """

    def __init__(self, name: str, points: Sequence[str]) -> None:
        self.name = name
        self.stacks: dict[str, list[str]] = {}
        self.types: dict[str, None] = {}
        self._points = {point.partition("(")[0]: point for point in points}
        self._texts = {point: point.partition("(")[2].rstrip(")") for point in points}
        self.names = {re.split("[.:]", place)[-1] for place in self._points}
        """Names of the functions."""

    @property
    def frames(self) -> int:
        """Return the number of functions on the deepest stack."""
        return max(len(stack) for stack in self.stacks.values())

    @staticmethod
    @contextmanager
    def of_all(traces: Iterable["FlowTrace"]) -> Iterator[None]:
        """Trace the calls of this thread during the block."""
        by_name: dict[str, list[FlowTrace]] = {}
        for trace in traces:
            for name in trace.names:
                by_name.setdefault(name, []).append(trace)

        def event(frame: FrameType, kind: str, _: object) -> None:
            if kind == "call":
                for trace in by_name.get(frame.f_code.co_name, ()):
                    trace.called(frame)

        before = sys.getprofile()
        sys.setprofile(event)
        try:
            yield
        finally:
            sys.setprofile(before)

    def report(self) -> str:
        """Return the stacks and types, one line each."""
        lines = [f"{len(self.types)} types: {', '.join(self.types)}"]
        for point, stack in self.stacks.items():
            lines += [f"{len(stack)} frames to {point}", *(f"    {where}" for where in stack)]
        return "\n".join(lines)

    def called(self, frame: FrameType) -> None:
        """Note the stack of a call if it is a hand-over of the object."""
        point = self._points.get(_place_of(frame), "")
        if not point or point in self.stacks:
            return
        values = list(frame.f_locals.values())
        if not all(any(_has(v, text) for v in values) for text in (self.name, self._texts[point])):
            return
        frames = itertools.dropwhile(lambda each: not _has_local(each, self.name), _stack(frame))
        self.stacks[point] = []
        for each in frames:
            self.stacks[point].append(_place_of(each))
            carriers = [v for value in each.f_locals.values() for v in _carriers(value, self.name)]
            fields = {id(field) for carrier in carriers for field in _fields(carrier)}
            self.types |= {type(v).__qualname__: None for v in carriers if id(v) not in fields}


def _carriers(value: object, name: str) -> Iterator[object]:
    """Yield `value`, or the items of a list, as far as they carry the object."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for item in value[:100]:
            yield from _carriers(item, name)
    elif _is_ours(value) and _has(value, name):
        yield value


def _fields(carrier: object) -> Iterator[object]:
    """Yield the values of the fields of a carrier, and the items of those that are lists."""
    for name in getattr(carrier, "__struct_fields__", getattr(carrier, "_fields", ())):
        field = getattr(carrier, name, None)
        yield field
        if isinstance(field, list | tuple):
            yield from field


def _stack(frame: FrameType) -> list[FrameType]:
    """Return the frames of our own code from the root to `frame`."""
    stack: list[FrameType] = []
    at: FrameType | None = frame
    while at is not None:
        if at.f_code.co_filename.startswith(OURS):
            stack.append(at)
        at = at.f_back
    return stack[::-1]


def _has_local(frame: FrameType, name: str) -> bool:
    return any(_has(value, name) for value in frame.f_locals.values())


def _place_of(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    return f"{module}:{frame.f_code.co_qualname}".replace(".<locals>", "")


def _is_ours(value: object) -> bool:
    made = isinstance(value, msgspec.Struct | Delivery) or hasattr(value, "_fields")
    return made and type(value).__module__.startswith(PACKAGES)


def _has(value: object, name: str, depth: int = 0) -> bool:
    """Tell whether a value contains a name."""
    if isinstance(value, str):
        return name in value
    if isinstance(value, bytes):
        return name.encode() in _unpacked(value)
    if isinstance(value, Delivery | JobRecord):
        return _has(value.message if isinstance(value, Delivery) else value.key, name)
    if depth > _DEEPEST:
        return False
    if isinstance(value, Mapping):
        return any(_has(k, name, depth + 1) or _has(v, name, depth + 1) for k, v in value.items())
    if isinstance(value, list | tuple):
        return any(_has(item, name, depth + 1) for item in value[:100])
    if isinstance(value, msgspec.Struct):
        return any(_has(field, name, depth + 1) for field in _fields(value))
    if depth and type(value).__module__.startswith(PACKAGES) and hasattr(value, "__dict__"):
        return any(_has(field, name, depth + 1) for field in vars(value).values())
    return False


def _unpacked(payload: bytes) -> bytes:
    """Return a payload of the bus without its compression; other bytes as they are."""
    try:
        return unpack(payload)
    except ContractError:
        return payload


TOUR = ROOT / "docs" / "tour.md"
NAME = "traced"
POD = "traced-w-0"
SOCKET = "shared.kube.connections:_Connection.send"


class Flow(NamedTuple):
    """A flow with its hand-overs in order, and the most types and frames that it may have."""

    object: str
    """Name of the object that is followed."""
    points: tuple[str, ...]
    types: int
    frames: int


FLOWS = {
    "watch event → scheduler": Flow(
        POD,
        (
            "services.cache.fold.publish_queue:PublishQueue.put",
            "shared.bus.connection:BusSession.send",
            "shared.bus.state:StateFollower._fact",
            "services.scheduler.adapters.feed:Inbox.facts",
            "services.scheduler.engine.state.cluster_state:ClusterState.put",
        ),
        types=7,
        frames=9,
    ),
    "bind → POST": Flow(
        POD,
        (
            "services.binder.adapters.execute:IntentExecutor.run",
            "shared.kube.client:Kube.request(binding)",
        ),
        types=7,
        frames=12,
    ),
    "Job event → pods created": Flow(
        NAME,
        (
            "shared.runtime.workqueue:WorkQueue.add_after",
            "services.controller.adapters.executor:EffectExecutor._announce_pods",
            "shared.kube.client:Kube.create(traced-w-0)",
        ),
        types=7,
        frames=12,
    ),
}


@cache
def traces() -> dict[str, FlowTrace]:
    """Return a trace per flow of one gang in the simulation."""

    async def one_gang(sim: Simulation) -> None:
        workloads.gang(sim, NAME, 2)

    found = {name: FlowTrace(flow.object, flow.points) for name, flow in FLOWS.items()}
    known = dict(simulation.WORKLOADS)
    simulation.WORKLOADS["flow"] = one_gang
    try:
        with FlowTrace.of_all(found.values()):
            report = simulate(1, workload="flow", nemesis_names=[])
    finally:
        simulation.WORKLOADS.clear()
        simulation.WORKLOADS.update(known)
    assert report.ok, report.violations
    return found


async def request_of_a_bind(directory: Path) -> FlowTrace:
    """Return the trace of the request of a bind, from `Kube.request` to the socket."""
    trace = FlowTrace(POD, [SOCKET])
    async with ScriptedApi().serving() as api, client_of(api, directory) as kube:
        api.then(status(201))
        with FlowTrace.of_all([trace]):
            await kube.bind("ns", POD, uid="u", node="n")
    return trace


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_has_few_types_and_frames(name):
    trace, flow = traces()[name], FLOWS[name]
    print(f"{name}\n{trace.report()}")
    assert set(trace.stacks) == set(flow.points), "each hand-over is reached"
    assert len(trace.types) <= flow.types, trace.report()
    assert trace.frames <= flow.frames, trace.report()


def test_a_bind_has_few_frames_down_to_the_socket(tmp_path):
    flow = FLOWS["bind → POST"]
    above, below = traces()["bind → POST"], asyncio.run(request_of_a_bind(tmp_path))
    upper, lower = above.stacks[flow.points[-1]], below.stacks[SOCKET]
    stack = [*upper, *lower[lower.index(upper[-1]) + 1 :]]
    print(f"{len(stack)} frames", *stack, sep="\n    ")
    assert len(stack) <= flow.frames, stack
    assert len(above.types | below.types) <= flow.types


def test_the_tour_names_each_module_on_the_flows():
    text = TOUR.read_text()
    places = {place for t in traces().values() for stack in t.stacks.values() for place in stack}
    modules = {place.partition(":")[0].replace(".", "/") + ".py" for place in places}
    assert not {module for module in modules if module not in text}
