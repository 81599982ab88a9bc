"""Many jobs wait while small ones come and go: `python -m benchmarks.engine.waiting`.

A cluster whose nodes are almost full, thousands of gangs in 50 queues that find no room, and five
one-pod jobs a second. `World` plays the other services: what the scheduler wants is shown by the
objects, a group that is let in gets its pods, a pod that is bound runs and ends. Time is virtual:
cycles take the CPU seconds that they took here and are paced as the service paces them, so that a
busy machine changes nothing.
"""

import argparse
import heapq
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from benchmarks.engine import clusters
from benchmarks.engine.clusters import BLOCK_MILLI, Object, fact
from benchmarks.engine.measure import alone
from services.scheduler.config import DEFAULT_TEXT
from services.scheduler.cycle import rest_s
from services.scheduler.decide import configure
from services.scheduler.decision_settings import MIN_WAITING_FOR_POOL, DecisionSettings
from services.scheduler.scheduler_state import SchedulerState
from services.scheduler.settings import SchedulerSettings
from shared.contracts import codec
from shared.contracts import messages as m
from shared.contracts.messages import BindGang, ItemOutcome, Outcome, Result
from shared.runtime.service import tune_garbage_collector

QUEUES: Final = 50
NODES: Final = 1_000
MEMBERS: Final = 4
"""Pods of a waiting gang; each asks for a fourth of a node."""
EVERY_S: Final = 0.2
"""A small job comes so often."""
RUNS_S: Final = 1.0
HOP_S: Final = 0.01
"""From a desired status or a command to what it has changed, and from one change to the next."""
SETTLE_S: Final = 60.0
WARM_S: Final = 100.0
MEASURED_S: Final = 20.0

_EVICTING: Final = ("enqueue", "allocate", "preempt", "reclaim", "backfill")
CONFIGURATIONS: Final = {
    "default": DEFAULT_TEXT,
    "proportion": clusters.scheduler_conf(*_EVICTING),
    "capacity": clusters.scheduler_conf(*_EVICTING, shares="capacity"),
    "no gate": """\
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
""",
}
"""Configurations by the name under which they are printed; `no gate` lets all have their pods."""


class Row(NamedTuple):
    """Figures of one load."""

    cycles: int
    cpu_s: float
    jobs: int
    longest_s: float
    latencies_s: list[float]

    def line(self) -> str:
        """Return the figures as cells of a table."""
        ordered = sorted(self.latencies_s)
        late = ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else math.nan
        return (
            f"{self.cycles / MEASURED_S:>9.1f}{1e3 * self.cpu_s / self.cycles:>10.2f}"
            f"{1e3 * self.longest_s:>10.1f}{1e3 * self.cpu_s / max(1, self.jobs):>10.1f}"
            f"{100 * self.cpu_s / MEASURED_S:>8.1f}{1e3 * late:>9.0f}"
        )


class World:
    """The cluster around the scheduler, on virtual time."""

    def __init__(self, waiting: int, configuration: str, few: int = MIN_WAITING_FOR_POOL) -> None:
        self._config = configure(CONFIGURATIONS[configuration])
        self._scheduler_state = SchedulerState(
            DecisionSettings(min_waiting_for_pool=few), gang_message=500, settle_s=1.0
        )
        self._objects: dict[tuple[str, str], Object] = {}
        self._changes: list[bytes] = []
        self._outcomes: list[Outcome] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._events_made = 0
        self._posted: dict[str, float] = {}
        self._now = 0.0
        self._cycle = 0
        self._jobs = 0
        self.latencies_s: list[float] = []
        self._fill()
        for gang in range(waiting):
            self._make_group(f"wait-{gang}", MEMBERS, f"{MEMBERS * BLOCK_MILLI}m")

    def _fill(self) -> None:
        for name in (f"q{number}" for number in range(QUEUES)):
            spec = {
                "weight": 1,
                "reclaimable": True,
                "deserved": {"cpu": str(NODES * 32 // QUEUES)},
            }
            meta = {"name": name, "uid": f"uid-{name}"}
            self._put("queues", {"metadata": meta, "spec": spec, "status": {"state": "Open"}})
        for number in range(NODES):
            self._put("nodes", clusters.node(number))
        for number in range(NODES):
            name = f"old-{number}"
            # Room for small jobs on every node, for a block on three: less than a gang needs.
            sizes = [BLOCK_MILLI] * 3 if number % 400 == 0 else [BLOCK_MILLI] * 3 + [6_000]
            group = clusters.group(name, len(sizes), "Running", f"q{number % QUEUES}", "")
            self._put("podgroups", group)
            for rank, size in enumerate(sizes):
                self._put("pods", clusters.pod(f"{name}-{rank}", size, node=number, rank=0))

    def _make_group(self, name: str, members: int, cpu: str) -> None:
        number = int(name.rpartition("-")[2])
        group = clusters.group(name, members, "Pending", f"q{number % QUEUES}", "")
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1.8e9 + number))
        group["metadata"]["creationTimestamp"] = stamp
        group["spec"]["minResources"] = {"cpu": cpu, "memory": "256Mi"}
        self._put("podgroups", group)

    # --- objects -------------------------------------------------------------------------------

    def _put(self, kind: str, document: Object) -> None:
        meta = document["metadata"]
        self._objects[kind, meta["name"]] = document
        self._changes.append(fact(kind, document))

    def _delete(self, kind: str, name: str) -> None:
        uid = self._objects.pop((kind, name))["metadata"]["uid"]
        key = f"ns/{name}"
        gone = m.Fact(kind=kind, key=key, uid=uid, rv="2", op=m.Op.DELETE)
        self._changes.append(codec.encode(gone))

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        self._events_made += 1
        heapq.heappush(self._events, (self._now + after_s, self._events_made, act))

    # --- what other services do ----------------------------------------------------------------

    def _submit(self) -> None:
        self._jobs += 1
        name = f"small-{self._jobs}"
        self._posted[name] = self._now
        self._make_group(name, 1, "100m")
        self._later(EVERY_S, self._submit)

    def _show(self, desired: m.Desired) -> None:
        kind = {
            m.DesiredPodGroup: "podgroups",
            m.DesiredPod: "pods",
            m.DesiredQueue: "queues",
        }[type(desired)]
        name = desired.key.rpartition("/")[2]
        document = self._objects.get((kind, name))
        if document is None:
            return
        status = dict(document["status"])
        if isinstance(desired, m.DesiredQueue):
            status |= {"allocated": desired.allocated, "pending": desired.pending}
        else:
            status["conditions"] = [_shown(condition) for condition in desired.conditions]
        if isinstance(desired, m.DesiredPodGroup):
            status |= {
                "phase": desired.phase,
                "running": desired.running,
                "succeeded": desired.succeeded,
                "failed": desired.failed,
            }
        self._put(kind, {**document, "status": status})
        if (
            kind == "podgroups"
            and desired.phase == "Inqueue"
            and ("pods", f"{name}-0") not in self._objects
        ):
            self._later(HOP_S, lambda: self._make_pods(name))

    def _make_pods(self, name: str) -> None:
        members, asked = (1, 100) if name.startswith("small") else (MEMBERS, BLOCK_MILLI)
        for rank in range(members):
            self._put("pods", clusters.pod(f"{name}-{rank}", asked, rank=0))

    def _bind(self, command: BindGang) -> None:
        items = []
        for bind in command.binds:
            name = bind.pod.rpartition("/")[2]
            document = self._objects["pods", name]
            spec = {**document["spec"], "nodeName": bind.node}
            self._put("pods", {**document, "spec": spec, "status": {"phase": "Pending"}})
            items.append(
                ItemOutcome(pod=bind.pod, uid=bind.uid, result=Result.BOUND, node=bind.node)
            )
            self._later(HOP_S, lambda name=name: self._phase(name, "Running"))
            self._later(RUNS_S, lambda name=name: self._phase(name, "Succeeded"))
            self._later(2 * RUNS_S, lambda name=name: self._remove(name))
        self._outcomes.append(
            Outcome(
                intent=command.id,
                job=command.job,
                items=tuple(items),
                instance="binder",
                time=self._now,
            )
        )

    def _phase(self, name: str, phase: str) -> None:
        self._put("pods", {**self._objects["pods", name], "status": {"phase": phase}})

    def _remove(self, name: str) -> None:
        self._delete("pods", name)
        self._delete("podgroups", name.rpartition("-")[0])

    # --- the scheduler -------------------------------------------------------------------------

    def run(self, until: float) -> Row:
        """Let the time pass; return what the scheduler's cycles took."""
        settings = SchedulerSettings()
        cycles, cpu_s, longest, jobs = 0, 0.0, 0.0, self._jobs
        self.latencies_s = []
        while self._now < until:
            started = self._now
            took = self._step()
            cycles, cpu_s, longest = cycles + 1, cpu_s + took, max(longest, took)
            ended = self._now = started + took
            self._pass(ended)
            if not self._changes and not self._outcomes:
                upto = ended + settings.schedule_period
                self._now = min(upto, self._events[0][0] if self._events else upto)
                self._pass(self._now)
                if not self._changes and not self._outcomes:
                    continue
            next_start = max(started + settings.min_period, ended + rest_s(took))
            self._now += max(settings.debounce, next_start - self._now)
            self._pass(self._now)
        return Row(cycles, cpu_s, self._jobs - jobs, longest, self.latencies_s)

    def start(self) -> None:
        """Begin to submit small jobs."""
        self._submit()

    def _pass(self, now: float) -> None:
        while self._events and self._events[0][0] <= now:
            at, _, act = heapq.heappop(self._events)
            self._now = max(at, 0.0)
            act()
        self._now = now

    def _step(self) -> float:
        """Run a cycle; return its CPU seconds."""
        changes, self._changes = self._changes, []
        outcomes, self._outcomes = self._outcomes, []
        self._cycle += 1
        begun = time.process_time()
        failures = self._scheduler_state.fold([codec.decode_fact(payload) for payload in changes])
        self._scheduler_state.outcomes(outcomes)
        decision = self._scheduler_state.decide(
            self._config, now=self._now, cycle=self._cycle, token=1
        )
        for command in decision.commands:
            codec.encode(command)
        for desired in decision.statuses:
            codec.encode(desired.message)
        for said in decision.explained:
            codec.encode(said)
        if not decision.is_empty:
            self._scheduler_state.assume_statuses(decision.plan)
        took = time.process_time() - begun
        if failures or decision.exclusions:
            raise ValueError(f"left out: {failures[:1]} {decision.exclusions[:1]}")
        self._carry_out(decision.commands, [desired.message for desired in decision.statuses])
        return took

    def _carry_out(self, commands: Sequence[m.Command], statuses: Sequence[m.Desired]) -> None:
        for command in commands:
            assert isinstance(command, BindGang), "no pod was to be evicted"
            name = command.job.rpartition("/")[2]
            assert name.startswith("small"), f"{name} was to wait"
            self.latencies_s.append(self._now - self._posted.pop(name))
            self._later(HOP_S, lambda command=command: self._bind(command))
        for desired in statuses:
            self._later(HOP_S, lambda desired=desired: self._show(desired))


def _shown(condition: m.DesiredCondition) -> Object:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }


def measured(configuration: str, waiting: int, few: int) -> Row:
    """Measure one load in this process."""
    world = World(waiting, configuration, few)
    tune_garbage_collector()
    world.run(SETTLE_S)
    world.start()
    world.run(WARM_S)
    return world.run(WARM_S + MEASURED_S)


def main(argv: list[str] | None = None) -> None:
    """Print a line per load."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine.waiting", description=__doc__
    )
    parser.add_argument("--waiting", type=int, nargs="*", default=(0, 2_000, 20_000))
    parser.add_argument("--configuration", choices=sorted(CONFIGURATIONS), nargs="*")
    parser.add_argument(
        "--every-turn", action="store_true", help="have all jobs looked at in every cycle"
    )
    given = parser.parse_args(argv)
    few = sys.maxsize if given.every_turn else MIN_WAITING_FOR_POOL
    print(f"{'configuration':<14}{'waiting':>8}{'cycles/s':>9}{'ms/cycle':>10}", end="")
    print(f"{'longest':>10}{'ms/job':>10}{'core %':>8}{'p99 ms':>9}")
    for name in given.configuration or CONFIGURATIONS:
        for waiting in given.waiting:
            row = alone(partial(measured, name, waiting, few))
            print(f"{name:<14}{waiting:>8}{row.line()}", flush=True)


if __name__ == "__main__":
    main()
