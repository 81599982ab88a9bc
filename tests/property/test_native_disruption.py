"""Of a native group that is disrupted together, evictions take all pods or none."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pumice.testing import Cluster, evictions_of
from shared.api import kinds
from tests.support.laws import count_hits, needs_hits

CONF = """
actions: "{}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: drf}}]
- plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]
configurations:
- name: gangpreempt
  arguments: {{spareVictims: {}}}
- name: gangreclaim
  arguments: {{spareVictims: {}}}
"""
ACTIONS = st.sampled_from(
    [
        "enqueue, allocate, gangpreempt, gangreclaim",
        "enqueue, allocate, preempt, gangpreempt, reclaim, gangreclaim",
        "gangreclaim, preempt, gangpreempt",
    ]
)
NODES = ("n0", "n1", "n2")
GROUPS = st.lists(
    st.fixed_dictionaries(
        {
            "together": st.booleans(),
            "queue": st.sampled_from(["a", "b"]),
            "priority": st.sampled_from([0, 5]),
            "min_count": st.integers(1, 3),
            "running": st.lists(
                st.tuples(st.integers(1, 2), st.sampled_from(NODES)), min_size=1, max_size=4
            ),
        }
    ),
    min_size=1,
    max_size=4,
)
GANG = st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(1, 3), min_size=1, max_size=4))


def put(cluster: Cluster, name: str, *, queue: str, min_count: int, **spec: object) -> None:
    annotations = {"scheduling.volcano.sh/queue-name": queue}
    metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": annotations}
    policy = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    cluster.put(kinds.NATIVEPODGROUP, {"metadata": metadata, "spec": {**policy, **spec}})


@needs_hits(at_least=30)
@given(ACTIONS, st.booleans(), GROUPS, GANG)
def test_a_group_that_is_disrupted_together_loses_all_pods_or_none(actions, spare, groups, gang):
    text = str(spare).lower()
    cluster = Cluster(CONF.format(actions, text, text)).queue("a").queue("b")
    for node in NODES:
        cluster.node(node, cpu="4")
    for at, group in enumerate(groups):
        name = f"g{at}"
        mode = {"disruptionMode": {"all": {}}} if group["together"] else {}
        put(
            cluster,
            name,
            queue=group["queue"],
            min_count=group["min_count"],
            priority=group["priority"],
            **mode,
        )
        for number, (cpu, node) in enumerate(group["running"]):
            pod = f"{name}-{number}"
            cluster.pod(pod, cpu=str(cpu), node=node, schedulingGroup={"podGroupName": name})
    queue, cpus = gang
    put(cluster, "high", queue=queue, min_count=len(cpus), priority=10)
    for number, cpu in enumerate(cpus):
        cluster.pod(f"high-{number}", cpu=str(cpu), schedulingGroup={"podGroupName": "high"})
    lost = Counter(pod.partition("-")[0] for pod in evictions_of(cluster.decide()))
    together = {f"g{at}": group for at, group in enumerate(groups) if group["together"]}
    count_hits([name for name in together if lost[name]])
    for name, group in together.items():
        assert lost[name] in {0, len(group["running"])}
