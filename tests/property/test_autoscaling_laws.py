"""Laws of autoscaling: an autoscaler that goes by pods' conditions gives every gang its nodes.

The autoscaler is that of Cluster Autoscaler in small: it packs the pods that are Unschedulable into
the free room of the nodes, and adds nodes of one shape for the rest.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from shared.model.status import TaskStatus

SHAPE = 4
CONF = """
actions: "enqueue, allocate, backfill"
autoscalerLimits: {cpu: 1k, memory: 1Ti}
tiers:
- plugins: [{name: gang}, {name: autoscaling, arguments: {autoscaling.by: pods}}]
- plugins: [{name: overcommit}, {name: predicates}, {name: %s}, {name: nodeorder}]
"""


class Gang(NamedTuple):
    tasks: int
    cpu: int
    queue: str


gangs = st.lists(
    st.builds(
        Gang,
        tasks=st.integers(1, 6),
        cpu=st.integers(1, SHAPE),
        queue=st.sampled_from(["default", "narrow"]),
    ),
    min_size=1,
    max_size=4,
)
nodes = st.lists(st.integers(1, SHAPE), max_size=3)
sharing = st.sampled_from(["proportion", "capacity"])


class Play:
    """A cluster, gangs in it, and an autoscaler."""

    def __init__(
        self,
        sizes: list[int],
        drawn: list[Gang],
        rule: str,
        narrow: str,
        least: int | None = None,
    ) -> None:
        self.cluster = Cluster(CONF % rule).queue("narrow", capability={"cpu": narrow})
        self.free: dict[str, int] = {}
        self.cpu = {
            f"g{at}-{n}": gang.cpu for at, gang in enumerate(drawn) for n in range(gang.tasks)
        }
        for size in sizes:
            self.add_node(size)
        for at, gang in enumerate(drawn):
            shape = {"tasks": gang.tasks, "cpu": str(gang.cpu), "queue": gang.queue}
            self.cluster.gang(f"g{at}", min_member=least, **shape)

    def add_node(self, size: int = SHAPE) -> None:
        name = f"n{len(self.free)}"
        self.free[name] = size
        self.cluster.node(name, cpu=str(size))

    def step(self) -> set[str]:
        """Run a cycle; return the names of the pods that are Unschedulable."""
        plan = self.cluster.step()
        for gang in plan.binds:
            for bind in gang.binds:
                self.free[bind.node] -= self.cpu[bind.pod.partition("/")[2]]
        tasks = self.cluster.cluster_state.tasks()
        return {
            task.name
            for task in tasks
            if task.last_condition is not None
            and task.last_condition.reason == "Unschedulable"
            and task.status is TaskStatus.PENDING
        }

    def scale(self, pods: Iterable[str]) -> None:
        """Add nodes for the pods that do not fit into the free room, largest first."""
        room = sorted(self.free.values())
        for cpu in sorted((self.cpu[pod] for pod in pods), reverse=True):
            at = next((at for at, left in enumerate(room) if left >= cpu), None)
            if at is None:
                self.add_node()
                room.append(SHAPE)
                at = len(room) - 1
            room[at] -= cpu

    def waits(self, gang: str) -> bool:
        return bool(self.cluster.job(gang).by_status[TaskStatus.PENDING])


@settings(max_examples=60)
@given(nodes, gangs, sharing)
def test_every_gang_that_its_queue_admits_starts_and_a_gang_is_shown_whole(
    sizes: list[int], drawn: list[Gang], rule: str
) -> None:
    play = Play(sizes, drawn, rule, narrow="1k")
    for _ in range(3 * len(drawn) + 2):
        shown = play.step()
        for at, gang in enumerate(drawn):
            of_gang = {name for name in shown if name.startswith(f"g{at}-")}
            assert len(of_gang) in {0, gang.tasks}
        play.scale(shown)
    assert not any(play.waits(f"g{at}") for at in range(len(drawn)))


@settings(max_examples=40)
@given(nodes, gangs, sharing, st.integers(1, 2 * SHAPE))
def test_no_node_is_added_for_a_gang_that_its_queue_cannot_hold(
    sizes: list[int], drawn: list[Gang], rule: str, most: int
) -> None:
    too_large = [g._replace(queue="narrow") for g in drawn if g.tasks * g.cpu > most]
    play = Play(sizes, too_large, rule, narrow=str(most))
    for _ in range(3):
        play.scale(play.step())
    assert len(play.free) == len(sizes)


@settings(max_examples=40)
@given(nodes, gangs, sharing, st.integers(1, 2 * SHAPE))
def test_surplus_pods_get_no_more_nodes_than_their_queue_may_use(
    sizes: list[int], drawn: list[Gang], rule: str, most: int
) -> None:
    """volcano#4710. The first gang starts with one pod."""
    play = Play(sizes, [drawn[0]._replace(queue="narrow")], rule, narrow=str(most), least=1)
    for _ in range(4):
        play.scale(play.step())
    usable = most // drawn[0].cpu
    assert len(play.free) - len(sizes) <= usable
