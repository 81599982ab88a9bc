"""A run in which every type of event happens with every field of it, and what may be empty.

The services run as a user starts them, on an API server that the caller chooses. A field that is
promised in the catalogue and never filled here is a promise that does not hold.
"""

import json
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pumice.events import CATALOGUE, Event, LeaderChanged, Received, subscribe
from pumice.local.control_plane import ControlPlane
from pumice.local.fleet import NodeShape
from shared.api import keys
from shared.api import time as times
from shared.contracts import codec
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from shared.contracts.usage import PeriodUsage, QueueUsage
from shared.jobs.budgets import budgets_in, sums_needed
from tests.support.api import Api, connect
from tests.support.nats_servers import bus_of
from tests.support.pumice_run import Run, pumice_run
from tests.support.roles import run_flags
from tests.support.wait import until
from tests.support.world import job, queue, task

NAMESPACE: Final = "default"
CONFIGURATION: Final = """\
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
- plugins:
  - name: budgets
    arguments:
      budgets:
      - name: gpus
        queue: default
        users: ["*"]
        namespaces: ["*"]
        firstDay: 2026-01-01
        lastDay: 2999-12-31
        hours: {nvidia.com/gpu: 10}
"""

MAY_BE_EMPTY: Final = {
    ("job.phase", "previous"): "a new Job has no phase before",
    ("job.phase", "reason"): "only a policy or a command is a reason",
    ("job.phase", "message"): "as the reason",
    ("job.phase", "version"): "0 until the first restart",
    ("job.phase", "retryCount"): "0 until the first restart",
    ("job.phase", "minResources"): "a new Job has no PodGroup yet",
    ("job.phase", "secondsRunning"): "only a job that has left the phase Running ran",
    ("job.phase", "secondsStated"): "as secondsRunning, and only of a job that states a duration",
    ("job.phase", "statedBy"): "as secondsStated",
    ("gang.admitted", "secondsStated"): "only an annotation says how long a gang will run",
    ("gang.unschedulable", "reasons"): "nodes are counted where the gate is a matter of nodes",
    ("gang.unschedulable", "position"): "0 when it had no turn",
    ("queue.state", "previous"): "a new queue has no state before",
    ("leader.changed", "previous"): "the first leader has none before it",
}
"""Fields that some events leave empty, and why; each must be filled in another event of the run."""


Look = Callable[[str, str], Awaitable[None]]


async def _no_look(url: str, password: str) -> None:
    """Look at nothing."""


async def play(plane: ControlPlane, directory: Path, look: Look = _no_look) -> list[Received]:
    """Run the services on a cluster, let everything happen once, and return all events.

    `look` is called at the end with URL and password of a subscriber, while everything runs.
    """
    conf = directory / "scheduler.yaml"
    conf.write_text(CONFIGURATION)
    data = directory / "run"
    words: tuple[str, ...] = ("--kubeconfig", str(plane.kubeconfig), "--scheduler-conf", str(conf))
    words += tuple(run_flags(plane.kubeconfig))
    words += ("--data-dir", str(data), "--log-dir", str(directory / "run-logs"))
    words += ("--queue-commands-from=*",)
    async with connect(plane.kubeconfig) as api, pumice_run(*words) as services:
        await services.ready()
        await plane.add_nodes(NodeShape(count=3, cpu="4", memory="16Gi"))
        seen = Seen.of(services, data)
        await _queues(api, seen)
        await _jobs(api, seen)
        await _budget(seen, data)
        await _another_leader(services, seen)
        conf.write_text(CONFIGURATION.replace("allocate", "alocate"))
        await seen.comes("configuration.refused", service="scheduler", file=str(conf))
        found = await seen.all()
        await look(seen.url, seen.password)
        await services.stop()
    return found


class Seen:
    """Events that subscribers can read so far."""

    def __init__(self, url: str, password: str) -> None:
        self.url = url
        self.password = password

    @classmethod
    def of(cls, services: Run, data: Path) -> "Seen":
        """Return what is seen of a run whose data is in this folder."""
        users = json.loads((data / "nats" / "users.json").read_text())
        url = next(line.split()[-1] for line in services.lines if "nats-server listens" in line)
        return cls(url, users["events"])

    async def all(self) -> list[Received]:
        """Return all events."""
        events = subscribe(self.url, user="events", password=self.password, follow=False)
        return [received async for received in events]

    async def comes(self, topic: str, **fields: object) -> None:
        """Wait for an event of a type with these values."""

        async def is_there() -> bool:
            return any(
                type(event).topic == topic
                and all(getattr(event, name) == value for name, value in fields.items())
                for event in (received.event.data for received in await self.all())
            )

        await until(is_there, deadline_s=60, every_s=0.25, describe=f"{topic} with {fields}")


async def _another_leader(services: Run, seen: Seen) -> None:
    """Kill the scheduler that leads; the one that is started after it leads next."""
    await seen.comes("leader.changed", service="cache", previous="")
    await seen.comes("leader.changed", service="scheduler", previous="")
    line = next(line for line in services.lines if "scheduler listens on" in line)
    os.kill(int(line.rpartition("pid ")[2].rstrip(")")), signal.SIGKILL)
    first = [e.event.data for e in await seen.all() if isinstance(e.event.data, LeaderChanged)]
    killed = next(event for event in first if event.service == "scheduler")
    await seen.comes("leader.changed", service="scheduler", previous=killed.instance)


async def _queues(api: Api, seen: Seen) -> None:
    await api.create("queues", queue("side", weight=1))
    await seen.comes("queue.state", queue="side", state="Open")
    side = await api.get("queues", "", "side")
    order = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "close-side"},
        "action": "CloseQueue",
        "target": {
            "apiVersion": side["apiVersion"],
            "kind": "Queue",
            "name": "side",
            "uid": side["metadata"]["uid"],
            "controller": True,
        },
    }
    await api.create("commands", order, NAMESPACE)
    await seen.comes("queue.state", queue="side", state="Closed")


async def _jobs(api: Api, seen: Seen) -> None:
    for name, value in (("low", 1), ("high", 1000)):
        await api.create(
            "priorityclasses",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            },
        )
    # Too large for any node, and not for the cluster: it is admitted, and waits.
    wide = job("wide", task("work", 1, cpu="5"), priorityClassName="low")
    await api.create("jobs", wide, NAMESPACE)
    await seen.comes("gang.unschedulable", job="default/wide", gate="predicate")
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    low = job("low", task("work", 6, cpu="2"), priorityClassName="low", policies=policies)
    low["spec"]["minAvailable"] = 1
    low["metadata"]["annotations"] = {keys.EXPECTED_DURATION: "1h"}
    await api.create("jobs", low, NAMESPACE)
    await seen.comes("job.phase", job="default/low", phase="Running")
    await _second_is_over(api, "low")
    await api.create(
        "jobs", job("high", task("work", 2, cpu="2"), priorityClassName="high"), NAMESPACE
    )
    await seen.comes("pod.evicted", job="default/low")
    await seen.comes("job.phase", job="default/low", phase="Restarting")
    await seen.comes("pod.bound", job="default/high")


async def _budget(seen: Seen, data: Path) -> None:
    """Publish, as accounting does, that a user has used most of a budget."""
    now = time.time()
    (budget,) = budgets_in(yaml.safe_load(CONFIGURATION))
    users = {"ann": {NAMESPACE: {"nvidia.com/gpu": 8.0}}}
    periods = [PeriodUsage(begin=at, users=users) for at in sums_needed([budget], now)]
    usage = QueueUsage(
        queue="default", at=now, half_life_s=3600.0, users={}, periods=tuple(periods)
    )
    password = json.loads((data / "nats" / "users.json").read_text())["accounting"]
    async with bus_of(seen.url, "accounting", password) as bus:
        stream, subject = streams("local").usage.name, Subjects(cluster="local").usage("default")
        await bus.publisher(stream).publish(subject, codec.encode(usage))
    await seen.comes("budget.reached", budget="gpus", user="ann", percent=80)


async def _second_is_over(api: Api, name: str) -> None:
    """Wait until a job has been in its phase for a second: times of objects are whole seconds."""
    status = (await api.get("jobs", NAMESPACE, name))["status"]
    since = times.parse(status["state"]["lastTransitionTime"])
    await until(lambda: time.time() >= since + 1, describe=f"{name} is a second in its phase")


def complaints(events: Sequence[Received]) -> list[str]:
    """Return what is wrong with the fields of the events of a run."""
    found = []
    by_topic: dict[str, list[Event]] = defaultdict(list)
    for received in events:
        by_topic[type(received.event.data).topic].append(received.event.data)
    for each in CATALOGUE:
        topic = each.topic
        found += [] if by_topic[topic] else [f"{topic} is never sent"]
        for name, wire_name in zip(
            each.__struct_fields__, each.__struct_encode_fields__, strict=True
        ):
            values = [getattr(event, name) for event in by_topic[topic]]
            found += _field_complaints(topic, wire_name, values)
    admitted = Counter(
        (event.uid, event.resource_version)  # type: ignore[attr-defined]
        for event in by_topic["gang.admitted"]
    )
    found += [
        f"gang {uid} is admitted {n} times at version {rv}"
        for (uid, rv), n in admitted.items()
        if n > 1
    ]
    return found


def _field_complaints(topic: str, name: str, values: Sequence[Any]) -> list[str]:
    if values and not any(values):
        return [f"{topic}: {name} is never filled"]
    empty = sum(1 for value in values if not value)
    if empty and (topic, name) not in MAY_BE_EMPTY:
        return [f"{topic}: {name} is empty in {empty} of {len(values)} events"]
    return []
