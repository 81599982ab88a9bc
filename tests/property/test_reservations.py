"""Laws of reservations, on clusters that are played forward with the engine, event by event.

A second account, made of loops over pods, says when a gang could start at the earliest. Gangs are
of equal pods: for those a forecast by amounts is exact.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from shared.api import kinds
from shared.api.time import format_seconds
from tests.support.laws import count_hits, needs_hits

START = 1_800_000_000
PATIENCE = 7
LONGEST = 12
OVER = 10**6
PLUGINS = "{name: predicates}, {name: %s}, {name: nodeorder}, {name: binpack, arguments: {%s}}"
CONF = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: gang}%s]
- plugins: [%s]
"""


class Drawn(NamedTuple):
    """A job that comes: in which second, how large, how long it says it runs, and does."""

    at: int
    tasks: int
    cpu: int
    says: int
    """0 for nothing."""
    runs: int
    queue: str


class Running(NamedTuple):
    node: str
    cpu: int
    says: int
    ends: int


def jobs(*, honest: bool, queues: tuple[str, ...] = ("default",)) -> Any:
    seconds = st.integers(1, LONGEST)
    drawn = st.builds(
        Drawn,
        at=st.integers(0, 12),
        tasks=st.integers(1, 4),
        cpu=st.integers(1, 4),
        says=seconds if honest else st.integers(0, LONGEST),
        runs=seconds,
        queue=st.sampled_from(queues),
    )
    if honest:
        drawn = drawn.map(lambda job: job._replace(runs=min(job.runs, job.says)))
    return st.lists(drawn, min_size=4, max_size=12)


nodes = st.lists(st.integers(2, 4), min_size=2, max_size=4)


class Play:
    """A cluster, the jobs that come, and the time."""

    def __init__(self, sizes: list[int], drawn: list[Drawn], order: str, **more: Any) -> None:
        arguments = {"order": order, "patience": f"{PATIENCE}s", **more}
        said = ", ".join(f"reservation.{name}: {value}" for name, value in arguments.items())
        plugin = f", {{name: reservation, arguments: {{{said}}}}}" if order else ""
        self.world = Cluster(CONF % (plugin, PLUGINS % ("capacity", "binpack.weight: 1")))
        self.room = {f"n{number}": size for number, size in enumerate(sizes)}
        for name, size in self.room.items():
            self.world.node(name, cpu=str(size))
        for name in sorted({job.queue for job in drawn} - {"default"}):
            self.world.queue(name)
        self.drawn = {f"j{number:02}": job for number, job in enumerate(drawn)}
        self.second = self.played = 0
        self.running: dict[str, Running] = {}
        self.started: dict[str, int] = {}
        self.binds: list[dict[str, str]] = []

    def come(self, name: str, job: Drawn) -> None:
        created = format_seconds(START + job.at)
        self.world.group(name, min_member=job.tasks, created=created, queue=job.queue)
        for number in range(job.tasks):
            self.put_pod(f"{name}-{number}", job)

    def put_pod(self, pod: str, job: Drawn, node: str = "") -> None:
        says = {"pumice.dev/expected-duration": f"{job.says}s"} if job.says else {}
        status = {"startTime": format_seconds(START + self.second)} if node else {}
        group = pod.partition("-")[0]
        meta = {"annotations": says}
        self.world.pod(pod, group, cpu=str(job.cpu), node=node, metadata=meta, status=status)

    def step(self) -> None:
        """Play a second, and go on to the next one in which a job comes or ends."""
        for name, job in self.drawn.items():
            if job.at == self.second:
                self.come(name, job)
        for pod, running in list(self.running.items()):
            if running.ends == self.second:
                del self.running[pod]
                self.world.delete(kinds.POD, f"ns/{pod}")
                self.world.delete(kinds.PODGROUP, f"ns/{pod.partition('-')[0]}")
        plan = self.world.step(now=float(START + self.second))
        self.binds.append(binds_of(plan))
        for pod, node in binds_of(plan).items():
            name = pod.partition("-")[0]
            job = self.drawn[name]
            self.started[name] = self.second
            ends = self.second + job.runs
            self.running[pod] = Running(node, job.cpu, self.second + job.says, ends)
            self.put_pod(pod, job, node)
        coming = [job.at for job in self.drawn.values()]
        events = [*coming, *(running.ends for running in self.running.values())]
        self.played = self.second
        self.second = min((at for at in events if at > self.played), default=OVER)

    @property
    def is_over(self) -> bool:
        """Whether nothing comes and nothing runs any more."""
        return self.second == OVER

    def reserved(self) -> list[str]:
        """Return the jobs with a reservation, in their order."""
        memory = self.world.cluster_state.memory
        since = {
            name.partition("/ns/")[2]: when
            for name, when in memory.items()
            if name.startswith("reservation.since/")
        }
        return sorted(since, key=lambda name: (since[name], self.drawn[name].at, name))

    def promise(self, name: str) -> float:
        return self.world.cluster_state.memory[f"reservation.promise/ns/{name}"] - START

    def earliest(self, name: str, *, without: Collection[str] = ()) -> int:
        """Return the second in which a gang could start if nothing else did.

        A pod beyond its end has ended in the next second. Jobs `without` have not started.
        """
        job = self.drawn[name]
        pods = [
            running._replace(says=max(running.says, self.played + 1))
            for pod, running in self.running.items()
            if pod.partition("-")[0] not in without
        ]
        for second in sorted({self.played, *(running.says for running in pods)}):
            free = dict(self.room)
            for running in pods:
                if running.says > second:
                    free[running.node] -= running.cpu
            if sum(room // job.cpu for room in free.values()) >= job.tasks:
                return second
        raise AssertionError(f"{name} never starts")


@needs_hits(at_least=15)
@settings(max_examples=40, deadline=None)
@given(nodes, jobs(honest=True, queues=("default", "other")), st.integers(1, 2))
def test_the_first_reservation_is_not_delayed_by_what_passes_if_durations_hold(sizes, drawn, most):
    play = Play(sizes, drawn, "backfill", jobs=most)
    first, by, passed = "", 0, []
    while not play.is_over:
        before = set(play.started)
        play.step()
        if first and first in play.started:
            assert play.started[first] <= by
            first = ""
        elif first:
            assert first in play.reserved(), "it still waits"
            assert play.earliest(first) <= by
            passed += sorted(set(play.started) - before)
        reserved = play.reserved()
        if reserved and reserved[0] != first:
            first, by = reserved[0], OVER
        if first:
            by = min(by, play.earliest(first))
    count_hits(passed)


late = st.builds(
    Drawn,
    at=st.integers(0, 12),
    tasks=st.integers(1, 3),
    cpu=st.integers(1, 4),
    says=st.integers(1, 4),
    runs=st.integers(1, LONGEST),
    queue=st.just("default"),
)


@needs_hits(at_least=10)
@settings(max_examples=40, deadline=None)
@given(nodes, st.lists(late, min_size=6, max_size=14))
def test_what_passes_takes_no_room_that_pods_beyond_their_end_leave_to_the_gang(sizes, drawn):
    """Such a pod may end at any moment: a job that passes would still hold the room then."""
    play = Play(sizes, drawn, "backfill")
    passed = []
    while not play.is_over:
        before, first = set(play.started), play.reserved()[:1]
        play.step()
        fresh = set(play.started) - before
        for name in set(first) - fresh:
            assert play.earliest(name) == play.earliest(name, without=fresh)
            over = any(running.says <= play.played for running in play.running.values())
            passed += sorted(fresh) if over else []
    count_hits(passed)


liars = st.builds(
    Drawn,
    at=st.just(0),
    tasks=st.just(1),
    cpu=st.integers(1, 2),
    says=st.integers(0, 2),
    runs=st.integers(1, LONGEST),
    queue=st.just("default"),
)


@needs_hits(at_least=5)
@settings(max_examples=12, deadline=None)
@given(st.lists(liars, min_size=50, max_size=60), st.integers(2, 3))
def test_with_wrong_durations_a_reserved_gang_starts_within_the_stated_bound(stream, count):
    """A gang wants all nodes; two small jobs come each second that run longer than they say."""
    large = Drawn(at=3, tasks=count, cpu=4, says=5, runs=5, queue="default")
    drawn = [large, *(job._replace(at=number // 2) for number, job in enumerate(stream))]
    play = Play([4] * count, drawn, "backfill")
    due: dict[str, float] = {}
    while not play.is_over:
        play.step()
        for name in play.reserved():
            promised = play.promise(name) + PATIENCE + LONGEST + 1
            assert promised <= due.get(name, promised)
            due.setdefault(name, promised)
    assert {name for name in due if name not in play.started} == set()
    assert [n for n in due if play.started[n] > due[n]] == []
    count_hits([n for n in due if play.started[n] > due[n] - LONGEST])


@needs_hits(at_least=15)
@settings(max_examples=25, deadline=None)
@given(nodes, jobs(honest=False, queues=("default", "other")))
def test_in_strict_order_jobs_of_a_queue_start_in_their_order(sizes, drawn):
    play = Play(sizes, drawn, "strict")
    while not play.is_over:
        play.step()
        for queue in ("default", "other"):
            line = [n for n, job in play.drawn.items() if job.queue == queue and fits(n, play)]
            line = [n for n in line if play.drawn[n].at <= play.played]
            line.sort(key=lambda name: (play.drawn[name].at, name))
            flags = [name in play.started for name in line]
            assert flags == sorted(flags, reverse=True)
    count_hits(play.started)


@settings(max_examples=15, deadline=None)
@given(nodes, jobs(honest=False, queues=("default", "other")))
def test_best_effort_is_to_go_without_the_plugin(sizes, drawn):
    plays = [Play(sizes, drawn, order) for order in ("best-effort", "")]
    while not plays[0].is_over:
        for play in plays:
            play.step()
    assert plays[0].binds == plays[1].binds
    assert plays[0].reserved() == []


def fits(name: str, play: Play) -> bool:
    """Tell whether the empty cluster has room for a job."""
    job = play.drawn[name]
    return sum(room // job.cpu for room in play.room.values()) >= job.tasks
