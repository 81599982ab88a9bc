"""Affinity and spreading over sums per domain equal the slow way, pod by pod (PL07, PL08).

`PlainAffinity` is written from Kubernetes' rules: loops over pods and nodes, as documents.
"""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster
from services.scheduler.engine.placement.choice import fill
from services.scheduler.engine.state.cluster_state import ClusterState
from shared.api import kinds

Doc = dict[str, Any]


class PlainAffinity:
    """Nodes by name → labels, and the pods on them: (node, pod document)."""

    def __init__(self, nodes: dict[str, dict[str, str]], placed: list[tuple[str, Doc]]) -> None:
        self.nodes = nodes
        self.placed = list(placed)

    def place(self, pod: Doc, count: int) -> list[str]:
        chosen = []
        for _ in range(count):
            fitting = [name for name in self.nodes if self.admits(pod, name)]
            if not fitting:
                break
            near, spread_ = self.affinity_scores(pod, fitting), self.spread_scores(pod, fitting)
            best = max(fitting, key=lambda n: 2 * near[n] + 2 * spread_[n])
            self.placed.append((best, pod))
            chosen.append(best)
        return chosen

    # --- required ----------------------------------------------------------------------------

    def admits(self, pod: Doc, name: str) -> bool:
        return (
            self._meets_affinity(pod, name)
            and not any(
                self._has_matching_pod_near(pod, term, name)
                for term in terms_of(pod, "podAntiAffinity", "required")
            )
            and not self._is_rejected_by_placed(pod, name)
            and all(self._meets_spread(pod, each, name) for each in spread(pod, "DoNotSchedule"))
        )

    def _domain(self, name: str, key: str) -> str | None:
        return self.nodes[name].get(key)

    def _same(self, one: str, other: str, key: str) -> bool:
        domain = self._domain(one, key)
        return domain is not None and domain == self._domain(other, key)

    def _meets_affinity(self, pod: Doc, name: str) -> bool:
        terms = terms_of(pod, "podAffinity", "required")
        if any(self._domain(name, term["topologyKey"]) is None for term in terms):
            return False

        def all_match(other: Doc) -> bool:
            return all(means(term, pod, other) for term in terms)

        friends = [node for node, other in self.placed if all_match(other)]
        if all(any(self._same(n, name, t["topologyKey"]) for n in friends) for t in terms):
            return True
        keys = [term["topologyKey"] for term in terms]
        somewhere = any(self._domain(n, key) is not None for n in friends for key in keys)
        return not somewhere and all_match(pod)

    def _has_matching_pod_near(self, pod: Doc, term: Doc, name: str) -> bool:
        return any(
            means(term, pod, other) and self._same(node, name, term["topologyKey"])
            for node, other in self.placed
        )

    def _is_rejected_by_placed(self, pod: Doc, name: str) -> bool:
        return any(
            means(term, other, pod) and self._same(node, name, term["topologyKey"])
            for node, other in self.placed
            for term in terms_of(other, "podAntiAffinity", "required")
        )

    # --- spreading ---------------------------------------------------------------------------

    def _counts(self, pod: Doc, each: Doc, keys: list[str]) -> dict[str, int]:
        """Return domain → pods, over nodes that have all labels and that the pod may use."""
        counts: dict[str, int] = {}
        for name, labels in self.nodes.items():
            if not all(key in labels for key in keys):
                continue
            wanted = pod["spec"].get("nodeSelector", {})
            if each.get("nodeAffinityPolicy", "Honor") == "Honor" and any(
                labels.get(key) != value for key, value in wanted.items()
            ):
                continue
            domain = labels[each["topologyKey"]]
            counts[domain] = counts.get(domain, 0) + self._pods(pod, each, name)
        return counts

    def _pods(self, pod: Doc, each: Doc, name: str) -> int:
        selector = each.get("labelSelector")
        if not selector:
            return 0
        return sum(
            node == name
            and other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and "deletionTimestamp" not in other["metadata"]
            and selects(selector, labels_of(other))
            for node, other in self.placed
        )

    def _meets_spread(self, pod: Doc, each: Doc, name: str) -> bool:
        if each["topologyKey"] not in self.nodes[name]:
            return False
        counts = self._counts(pod, each, [c["topologyKey"] for c in spread(pod, "DoNotSchedule")])
        least = min(counts.values(), default=2**31)
        if len(counts) < each.get("minDomains", 1):
            least = 0
        selector = each.get("labelSelector")
        itself = selector is not None and selects(selector, labels_of(pod))
        there = counts.get(self.nodes[name][each["topologyKey"]], 0)
        return there + itself - least <= each["maxSkew"]

    # --- scores ------------------------------------------------------------------------------

    def affinity_scores(self, pod: Doc, fitting: list[str]) -> dict[str, int]:
        raw = {name: self._preferred_weight(pod, name) for name in fitting}
        least, most = min(raw.values()), max(raw.values())
        if least == most:
            return dict.fromkeys(fitting, 0)
        return {n: int(100 * ((score - least) / (most - least))) for n, score in raw.items()}

    def _preferred_weight(self, pod: Doc, name: str) -> int:
        total = 0
        for node, other in self.placed:
            for one, two in ((pod, other), (other, pod)):
                for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                    for preference in terms_of(one, kind, "preferred"):
                        term = preference["podAffinityTerm"]
                        if means(term, one, two) and self._same(node, name, term["topologyKey"]):
                            total += sign * preference["weight"]
        return total

    def spread_scores(self, pod: Doc, fitting: list[str]) -> dict[str, int]:
        soft = spread(pod, "ScheduleAnyway")
        if not soft:
            return dict.fromkeys(fitting, 0)
        keys = [each["topologyKey"] for each in soft]
        valid = [name for name in fitting if all(key in self.nodes[name] for key in keys)]
        raw = {}
        for name in valid:
            score = 0.0
            for each in soft:
                key = each["topologyKey"]
                if key == "kubernetes.io/hostname":
                    size, there = len(valid), self._pods(pod, each, name)
                else:
                    size = len({self.nodes[n][key] for n in valid})
                    there = self._counts(pod, each, keys).get(self.nodes[name][key], 0)
                score += there * math.log(size + 2) + each["maxSkew"] - 1
            raw[name] = math.floor(score + 0.5)
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        scaled = {n: 100 * (most + least - s) // most if most else 100 for n, s in raw.items()}
        return {name: scaled.get(name, 0) for name in fitting}


def labels_of(pod: Doc) -> dict[str, str]:
    return pod["metadata"].get("labels", {})


def terms_of(pod: Doc, kind: str, when: str) -> list[Doc]:
    affinity = pod["spec"].get("affinity") or {}
    return affinity.get(kind, {}).get(f"{when}DuringSchedulingIgnoredDuringExecution", [])


def spread(pod: Doc, when: str) -> list[Doc]:
    constraints = pod["spec"].get("topologySpreadConstraints", [])
    return [each for each in constraints if each["whenUnsatisfiable"] == when]


def means(term: Doc, owner: Doc, other: Doc) -> bool:
    """Tell whether a term of one pod speaks of another."""
    selector = term.get("labelSelector")
    if selector is None or not selects(selector, labels_of(other)):
        return False
    namespaces = term.get("namespaces", [])
    everywhere = term.get("namespaceSelector") == {}
    if not namespaces and not everywhere:
        namespaces = [owner["metadata"]["namespace"]]
    return everywhere or other["metadata"]["namespace"] in namespaces


def selects(selector: Doc, labels: dict[str, str]) -> bool:
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for need in selector.get("matchExpressions", []):
        value = labels.get(need["key"])
        holds = {
            "In": value in need.get("values", []),
            "NotIn": value not in need.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[need["operator"]]
        if not holds:
            return False
    return True


CONF = """
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - name: nodeorder
    arguments: {leastrequested.weight: 0, balancedresource.weight: 0, nodeaffinity.weight: 0,
                tainttoleration.weight: 0, imagelocality.weight: 0}
"""

keys = st.sampled_from(["kubernetes.io/hostname", "zone", "zone", "rack"])
selectors = st.sampled_from(
    [
        {},
        {"matchLabels": {"app": "x"}},
        {"matchLabels": {"app": "y"}},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
        {"matchLabels": {"tier": "1"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]},
        None,
    ]
)


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}


terms = st.fixed_dictionaries(
    {"topologyKey": keys, "labelSelector": selectors},
    optional={
        "namespaces": st.sampled_from([["ns"], ["other"], ["ns", "other"]]),
        "namespaceSelector": st.just({}),
    },
).map(_without_none)
preferences = st.fixed_dictionaries(
    {"weight": st.sampled_from([1, 10, 100]), "podAffinityTerm": terms}
)
constraints = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 2),
        "topologyKey": keys,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": selectors,
    },
    optional={
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
    },
).map(_without_none)


def _affinity(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    when = "DuringSchedulingIgnoredDuringExecution"
    return st.fixed_dictionaries(
        {},
        optional={
            f"required{when}": st.lists(terms, max_size=2),
            f"preferred{when}": st.lists(preferences, max_size=2),
        },
    )


specs = st.fixed_dictionaries(
    {},
    optional={
        "affinity": st.fixed_dictionaries(
            {},
            optional={
                "podAffinity": _affinity("podAffinity"),
                "podAntiAffinity": _affinity("podAntiAffinity"),
            },
        ),
        "topologySpreadConstraints": st.lists(constraints, max_size=2),
    },
)
labels = st.sampled_from([{}, {"app": "x"}, {"app": "y"}, {"app": "x", "tier": "1"}])
pods = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(["ns", "ns", "other"]),
        "labels": labels,
        "spec": specs,
        "deleting": st.sampled_from([False, False, False, True]),
    }
)
nodes = st.lists(
    st.fixed_dictionaries(
        {}, optional={"zone": st.sampled_from("abc"), "rack": st.sampled_from("rs")}
    ),
    min_size=1,
    max_size=6,
)


def document(name: str, pod: dict[str, Any], node: str = "", group: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": pod["namespace"], "labels": pod["labels"]}
    metadata["uid"] = f"uid-{name}"
    if group:
        metadata["annotations"] = {"scheduling.k8s.io/group-name": group}
    if pod.get("deleting"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "c", "resources": {"requests": {"cpu": "1m"}}}
    spec = {"schedulerName": "volcano", "nodeName": node, "containers": [container], **pod["spec"]}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending"},
    }


def sums(cluster_state: ClusterState) -> dict[tuple[str, str, str], dict[str, int]]:
    return {
        name: dict(by_node) for name, by_node in cluster_state.nodes.pod_affinity.sums().items()
    }


@given(
    node_labels=nodes,
    there=st.lists(st.tuples(st.integers(0, 5), pods), max_size=6),
    wanted=pods,
    picky=st.booleans(),
    count=st.integers(1, 7),
)
@settings(max_examples=200, deadline=None)
def test_pods_go_where_looking_at_every_pod_would_send_them(
    *, node_labels, there, wanted, picky, count
):
    world = Cluster(CONF)
    by_name = {}
    for number, more in enumerate(node_labels):
        by_name[f"n{number}"] = {"kubernetes.io/hostname": f"n{number}", **more}
        world.node(f"n{number}", cpu="1000", labels=by_name[f"n{number}"])
    placed = []
    for number, (node, pod) in enumerate(there):
        name = f"n{node % len(node_labels)}"
        placed.append((name, document(f"old-{number}", pod, name)))
        world.put(kinds.POD, placed[-1][1])
    new = document("new", wanted | {"namespace": "ns", "deleting": False}, group="g")
    if picky:
        new["spec"]["nodeSelector"] = {"zone": "a"}
    world.group("g").put(kinds.POD, new)
    task_class = world.job("g").tasks["uid-new"].task_class
    before = sums(world.cluster_state)
    session = world.session()
    try:
        fast = fill(session.candidates(task_class), count, waiting=False)
    finally:
        session.close()
    slow = PlainAffinity(by_name, placed)
    if picky:
        allowed = {n for n, labels in by_name.items() if labels.get("zone") == "a"}
        admits = slow.admits
        slow.admits = lambda pod, name: name in allowed and admits(pod, name)
    assert [f"n{column}" for column in fast] == slow.place(new, count)
    assert sums(world.cluster_state) == before


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "put", "delete", "decide", "nodes"]),
            st.integers(0, 5),
            st.integers(0, 3),
            pods,
        ),
        max_size=14,
    )
)
@settings(max_examples=60, deadline=None)
def test_sums_kept_up_equal_sums_from_scratch(*, steps):
    world = Cluster(CONF)
    for number in range(3):
        world.node(f"n{number}", labels={"zone": "ab"[number % 2]})
    last: dict[str, dict[str, Any]] = {}
    ever: list[dict[str, Any]] = []
    for what, number, node, pod in steps:
        name = f"p{number}"
        if what == "put":
            world.group("g")
            where = f"n{node}" if node < 3 else ""
            last[name] = document(name, pod | {"namespace": "ns"}, where, group="g")
            ever.append(last[name])
            world.put(kinds.POD, last[name])
        elif what == "delete" and name in last:
            del last[name]
            world.delete(kinds.POD, f"ns/{name}", f"uid-{name}")
        elif what == "nodes":
            world.delete(kinds.NODE, "n0").node("n0", labels={"zone": "ab"[node % 2]})
        elif what == "decide":
            before = sums(world.cluster_state)
            world.decide()
            assert sums(world.cluster_state) == before
    afresh = Cluster(CONF)
    for body in ever:  # what was once asked for is still counted
        name = body["metadata"]["name"]
        afresh.put(kinds.POD, body).delete(kinds.POD, f"ns/{name}", f"uid-{name}")
    for body in sorted(last.values(), key=lambda each: each["metadata"]["name"], reverse=True):
        afresh.put(kinds.POD, body)
    assert sums(world.cluster_state) == sums(afresh.cluster_state)


@given(
    there=st.lists(st.tuples(st.integers(0, 3), pods), max_size=8), gone=st.sets(st.integers(0, 7))
)
@settings(max_examples=60, deadline=None)
def test_forgetting_what_nobody_asks_for_any_more_changes_no_sum(*, there, gone):
    world = Cluster(CONF)
    for number in range(3):
        world.node(f"n{number}", labels={"zone": "ab"[number % 2]})
    kept = []
    for number, (node, pod) in enumerate(there):
        body = document(f"p{number}", pod | {"namespace": "ns"}, f"n{node}" if node < 3 else "")
        world.put(kinds.POD, body)
        kept.append(body)
    for number in sorted(gone & set(range(len(kept)))):
        world.delete(kinds.POD, f"ns/p{number}", f"uid-p{number}")
    world.cluster_state.nodes.pod_affinity._enough = 0
    world.cluster_state.task_classes._enough = 0
    world.cluster_state.tidy()
    afresh = Cluster(CONF)
    for number, body in enumerate(kept):
        if number not in gone:
            afresh.put(kinds.POD, body)
    assert sums(world.cluster_state) == sums(afresh.cluster_state)
    assert len(world.cluster_state.nodes.pod_affinity._queries) == len(
        afresh.cluster_state.nodes.pod_affinity._queries
    )
    assert {
        t.key: str(t.task_class.affinity_terms.states_terms) for t in world.cluster_state.tasks()
    } == {
        t.key: str(t.task_class.affinity_terms.states_terms) for t in afresh.cluster_state.tasks()
    }
