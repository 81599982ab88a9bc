"""Victim voting, the order in which victims go, budgets, cooldowns (SS05, SS06, PL14, PL15)."""

import pytest

from pumice.plugins import EvictionContext, EvictionKind
from pumice.plugins.combining import Tiers, agreed_victims
from pumice.plugins.points import Points
from pumice.testing import Cluster, evictions_of
from services.scheduler.config import BadConfig
from services.scheduler.engine.session.ordering import LiveHeap, Orders
from services.scheduler.engine.tasks.task import Task
from services.scheduler.policy.actions.preempt import PreemptArguments, VictimChoice
from shared.api import kinds


def tasks(*names: str) -> list[Task]:
    found = []
    for name in names:
        task = Task()
        task.uid = task.name = name
        found.append(task)
    return found


ABC = tasks("a", "b", "c")


def says(names: str | None):
    """Return a plugin that proposes these tasks, or abstains."""
    proposed = None if names is None else [task for task in ABC if task.name in names]
    return lambda _preemptor, _candidates: proposed


@pytest.mark.parametrize(
    ("tiers", "agreed"),
    [
        ([["ab", "bc"]], "b"),
        ([["ab", None]], "ab"),
        ([[None], ["c"]], "c"),
        ([["", "ab"], ["c"]], "c"),
        ([["ab", ""], ["c"]], "c"),
        ([["a", "b", "c"]], "c"),
        ([["a", "b"], ["ab"]], "ab"),
        ([["a"], [""]], "a"),
        ([["", "a"]], ""),
        ([[]], ""),
    ],
    ids=[
        "lists of a tier are intersected",
        "who abstains does not count",
        "a tier of abstentions leaves it to the next",
        "an empty list clears the tier, whoever speaks later",
        "an empty list clears the tier, whoever spoke before",
        "a disjoint list makes the next one start anew",
        "a tier that ends disjoint leaves it to the next",
        "the first tier with a result decides",
        "no tier left: nobody",
        "no plugin: nobody",
    ],
)
def test_plugins_vote_on_victims_ss06(tiers, agreed):
    voting = Tiers()
    voting.tiers = [[says(names) for names in tier] for tier in tiers]
    assert "".join(task.name for task in agreed_victims(voting)(ABC[0], ABC)) == agreed


def test_a_heap_asks_anew_when_things_meet():
    worth = {"a": 1, "b": 2, "c": 3, "d": 4}
    heap = LiveHeap(lambda x, y: worth[x] < worth[y], "dcba")
    assert heap.pop() == "a"
    worth["d"] = 0
    rest = [heap.pop() for _ in range(3)]
    assert sorted(rest) == ["b", "c", "d"]
    assert not heap


# --- the order of victims ------------------------------------------------------------------------


def running(cluster: Cluster) -> list[str]:
    """Return the names of all running tasks in the order in which they would have to go."""
    session = cluster.session()
    try:
        preemptor = next(iter(cluster.job("preemptor").tasks.values()))
        there = [task for task in cluster.cluster_state.tasks() if task.node]
        heap = Orders(session).victims(there, preemptor)
        return [heap.pop().name for _ in there]
    finally:
        session.close()


def test_victims_of_a_job_go_against_the_order_of_tasks():
    cluster = Cluster().node("n1").group("j", phase="Running").gang("preemptor", tasks=1)
    cluster.pod("j-0", "j", node="n1", priority=1).pod("j-1", "j", node="n1", priority=1)
    cluster.pod("j-2", "j", node="n1", priority=9)
    assert running(cluster) == ["j-1", "j-0", "j-2"]


def test_victims_of_jobs_that_no_plugin_tells_apart_go_by_their_tasks():
    """The age of a job is no plugin's word: the lesser task goes though its job is older."""
    cluster = Cluster().node("n1").gang("preemptor", tasks=1)
    cluster.group("old", phase="Running", created="2026-01-01T00:00:00Z")
    cluster.group("young", phase="Running", created="2026-01-02T00:00:00Z")
    cluster.pod("old-0", "old", node="n1", priority=1).pod(
        "young-0", "young", node="n1", priority=9
    )
    assert running(cluster) == ["old-0", "young-0"]


def test_victims_of_other_queues_go_against_the_order_of_queues():
    cluster = Cluster().node("n1").gang("preemptor", tasks=1)
    for name, priority in (("first", 9), ("last", 1)):
        cluster.queue(name, priority=priority, weight=1)
        cluster.group(f"j-{name}", queue=name, phase="Running")
        cluster.pod(f"{name}-0", f"j-{name}", node="n1", cpu="1")
    assert running(cluster) == ["last-0", "first-0"]


def test_for_whole_gangs_priority_counts_within_a_queue_and_not_between_queues_pl02():
    cluster = Cluster().node("n1").gang("preemptor", tasks=1)
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "p", "uid": "p"}, "value": 7})
    cluster.group("equal", phase="Running").pod("equal-0", "equal", node="n1")
    session = cluster.session()
    try:
        candidates = list(cluster.job("equal").tasks.values())
        found = {
            kind: session.hooks.evictable(
                EvictionContext(kind, cluster.job("preemptor")), candidates
            )
            for kind in EvictionKind
        }
    finally:
        session.close()
    assert found == {
        EvictionKind.GANG_PREEMPT: [],
        EvictionKind.GANG_RECLAIM: candidates,
        EvictionKind.DEFRAGMENT: candidates,  # it gets another place
    }


# --- topology-aware --------------------------------------------------------------------------


def victim(priority: int, started: float = 0.0) -> Task:
    task = Task()
    task.pod_priority, task.started = priority, started
    return task


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ([victim(1), victim(1)], [victim(2)]),
        ([victim(5), victim(1)], [victim(5), victim(4)]),
        ([victim(-3)], [victim(-3), victim(-3)]),
        ([victim(1, started=20.0)], [victim(1, started=10.0)]),
        ([victim(5, 20.0), victim(1, 1.0)], [victim(5, 10.0), victim(1, 9.0)]),
    ],
    ids=["lowest highest priority", "smallest sum", "fewest", "latest start", "of the highest"],
)
def test_the_node_with_the_smallest_loss_is_cleared_a06(better, worse):
    assert VictimChoice(1, better).loss() < VictimChoice(0, worse).loss()


@pytest.mark.parametrize(("nodes", "number"), [(5, 1), (200, 20), (5000, 100), (0, 0)], ids=str)
def test_so_many_nodes_are_compared_k07(nodes, number):
    assert PreemptArguments.read({}).number(nodes) == number


TOPOLOGY = """
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: conformance}]
- plugins: [{name: predicates}, {name: nodeorder}]
configurations:
- name: preempt
  arguments: {enableTopologyAwarePreemption: true, minCandidateNodesPercentage: 100}
"""


def test_victims_that_turn_out_not_to_be_needed_stay_most_important_first_a06():
    cluster = Cluster(TOPOLOGY).node("n1", cpu="8").group("preemptor", min_member=1)
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "p", "uid": "p"}, "value": 7})
    cluster.group("preemptor", min_member=1, priorityClassName="p")
    cluster.group("small", phase="Running").group("big", phase="Running")
    cluster.pod("small-0", "small", cpu="2", node="n1", priority=1)
    cluster.pod("big-0", "big", cpu="6", node="n1", priority=2)
    plan = cluster.pod("preemptor-0", "preemptor", cpu="5", priority=7).decide()
    # small-0 would go first, but it is the big one that makes the room
    assert evictions_of(plan) == {"big-0": "preemptor-0"}


def test_the_node_whose_victims_matter_least_is_taken_a06():
    cluster = Cluster(TOPOLOGY).node("n1", cpu="2").node("n2", cpu="2")
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "p", "uid": "p"}, "value": 7})
    cluster.group("j", phase="Running", min_member=0)
    cluster.pod("j-0", "j", cpu="2", node="n1", priority=5)
    cluster.pod("j-1", "j", cpu="2", node="n2", priority=3)
    cluster.group("preemptor", min_member=1, priorityClassName="p")
    plan = cluster.pod("preemptor-0", "preemptor", cpu="1", priority=7).decide()
    assert evictions_of(plan) == {"j-1": "preemptor-0"}
    assert [n.node for n in plan.nominations] == ["n2"]


# --- budgets and cooldowns -------------------------------------------------------------------


def budget(allowed: int, selector: dict, **status) -> dict:
    return {
        "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def protected(cluster: Cluster, conf: str, *, now: float = 0.0) -> list[str]:
    """Return the names of the tasks of job `j` that the plugin gives up."""
    world = Cluster(conf)
    world.cluster_state = cluster.cluster_state
    session = world.session(now=now)
    try:
        (rule,) = session.hooks.of(Points.preemptable).tiers[0]
        there = sorted(world.job("j").tasks.values(), key=lambda task: task.name)
        return [task.name for task in rule.fn(there[0], there) or ()]
    finally:
        session.close()


PDB = 'actions: "preempt"\ntiers:\n- plugins: [{name: pdb}]\n'
CDP = 'actions: "preempt"\ntiers:\n- plugins: [{name: cdp}]\n'


def labelled(*labels: dict) -> Cluster:
    cluster = Cluster().node("n1").group("j", phase="Running")
    for number, own in enumerate(labels):
        cluster.pod(f"j-{number}", "j", cpu="1", node="n1", metadata={"labels": own})
    return cluster


def test_no_more_go_than_budgets_allow_pl14():
    cluster = labelled({"app": "a"}, {"app": "a"}, {"app": "b"})
    cluster.put(kinds.PDB, budget(1, {"matchLabels": {"app": "a"}}))
    assert protected(cluster, PDB) == ["j-0", "j-2"]
    cluster.delete(kinds.PDB, "ns/b")
    assert protected(cluster, PDB) == ["j-0", "j-1", "j-2"]


def test_a_budget_of_another_namespace_protects_nobody_here_pl14():
    cluster = labelled({"app": "a"}, {"app": "a"})
    elsewhere = budget(0, {"matchLabels": {"app": "a"}})
    elsewhere["metadata"]["namespace"] = "tenant"
    cluster.put(kinds.PDB, elsewhere)
    assert protected(cluster, PDB) == ["j-0", "j-1"]


def test_pods_without_labels_are_dropped_as_well_pl14():
    assert protected(labelled({"app": "a"}, {}), PDB) == ["j-0"]


def test_a_budget_that_counted_a_pod_already_or_selects_by_nothing_protects_nobody_pl14():
    cluster = labelled({"app": "a"}, {"app": "a"})
    seen = {"disruptedPods": {"j-0": "2026-01-01T00:00:00Z"}}
    cluster.put(kinds.PDB, budget(0, {"matchLabels": {"app": "a"}}, **seen))
    assert protected(cluster, PDB) == ["j-0"]
    cluster.put(kinds.PDB, budget(0, {}))
    assert protected(cluster, PDB) == ["j-0", "j-1"]


@pytest.mark.parametrize(
    ("phase", "now", "free"),
    [("Running", 59.0, False), ("Running", 60.0, True), ("Pending", 0.0, True)],
    ids=["still warm", "cooled", "not running"],
)
def test_a_pod_is_protected_for_a_while_after_it_was_scheduled_pl15(phase, now, free):
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    cluster = Cluster().node("n1").group("j", phase="Running")
    cluster.pod(
        "j-0",
        "j",
        node="n1",
        phase=phase,
        metadata={"labels": {"volcano.sh/cooldown-time": "1m"}},
        status={"conditions": [scheduled]},
    )
    assert protected(cluster, CDP, now=now) == (["j-0"] if free else [])


# --- victims that are not needed ---------------------------------------------------------------


def uneven(action: str, *, spare: bool) -> Cluster:
    """A node with a small and a large pod, and one that wants more than the small one leaves."""
    conf = f"""
actions: "allocate, {action}"
tiers:
- plugins: [{{name: priority}}]
- plugins: [{{name: predicates}}, {{name: proportion, enabledAllocatable: false}}]
volcanoEvictions: {str(not spare).lower()}
"""
    cluster = Cluster(conf, queue=False).node("n1", cpu="8").queue("a").queue("b", weight=9)
    cluster.put(kinds.PRIORITYCLASS, {"metadata": {"name": "p", "uid": "p"}, "value": 7})
    cluster.group("j", queue="a", min_member=0, phase="Running")
    cluster.pod("j-0", "j", cpu="2", node="n1", priority=1)
    cluster.pod("j-1", "j", cpu="6", node="n1", priority=2)
    queue = "a" if action == "preempt" else "b"
    cluster.group("preemptor", queue=queue, min_member=1, priorityClassName="p")
    return cluster.pod("preemptor-0", "preemptor", cpu="5")


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_volcano_evicts_whoever_came_first_though_the_next_one_alone_would_do(action):
    plan = uneven(action, spare=False).decide()
    assert evictions_of(plan) == {"j-0": "preemptor-0", "j-1": "preemptor-0"}


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_nobody_goes_who_need_not(action):
    assert evictions_of(uneven(action, spare=True).decide()) == {"j-1": "preemptor-0"}


@pytest.mark.parametrize("action", ["preempt", "reclaim"])
def test_an_action_argument_of_the_wrong_kind_is_refused_with_its_place_k07(action):
    conf = (
        f'actions: "{action}"\ntiers: []\n'
        f"configurations: [{{name: {action}, arguments: {{spareVictims: often}}}}]\n"
    )
    with pytest.raises(BadConfig, match=f"action {action}: spareVictims"):
        Cluster(conf)
