"""The three main flows: how many types carry an object, and how deep the calls are.

`tests.support.flow_trace` says what counts. The simulation runs all services in one process against
an API server and a NATS server in memory; the request of a bind goes over a real socket, too.
docs/tour.md follows the same paths.
"""

import asyncio
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sim import simulation, workloads
from tests.sim.simulation import Simulation, simulate
from tests.support.flow_trace import FlowTrace
from tests.support.scripted_api import ScriptedApi, client_of, status

TOUR = Path(__file__).parents[3] / "docs" / "tour.md"
NAME = "traced"
POD = "traced-w-0"
SOCKET = "shared.kube.connections:_Connection.ask"


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
            "services.scheduler.engine.state.cluster_state:ClusterState.apply",
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
