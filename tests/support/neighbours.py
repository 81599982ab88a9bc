"""Reference for pod affinity and topology spread: plain loops over pods and nodes, as documents.

Written from Kubernetes' rules, to hold the engine's sums per domain to.
"""

import math
from typing import Any

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
            affinity_scores, spread_scores = (
                self.affinity_scores(pod, fitting),
                self.spread_scores(pod, fitting),
            )
            best = max(fitting, key=lambda n: 2 * affinity_scores[n] + 2 * spread_scores[n])
            self.placed.append((best, pod))
            chosen.append(best)
        return chosen

    # --- required ----------------------------------------------------------------------------

    def admits(self, pod: Doc, name: str) -> bool:
        return (
            self._meets_affinity(pod, name)
            and not any(
                self._has_matching_pod_near(pod, term, name)
                for term in required(pod, "podAntiAffinity")
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
        terms = required(pod, "podAffinity")
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
            for term in required(other, "podAntiAffinity")
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
                    for wish in preferred(one, kind):
                        term = wish["podAffinityTerm"]
                        if means(term, one, two) and self._same(node, name, term["topologyKey"]):
                            total += sign * wish["weight"]
        return total

    def spread_scores(self, pod: Doc, fitting: list[str]) -> dict[str, int]:
        wishes = spread(pod, "ScheduleAnyway")
        if not wishes:
            return dict.fromkeys(fitting, 0)
        keys = [each["topologyKey"] for each in wishes]
        valid = [name for name in fitting if all(key in self.nodes[name] for key in keys)]
        raw = {}
        for name in valid:
            score = 0.0
            for each in wishes:
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


def _terms(pod: Doc, kind: str, when: str) -> list[Doc]:
    affinity = pod["spec"].get("affinity") or {}
    return affinity.get(kind, {}).get(f"{when}DuringSchedulingIgnoredDuringExecution", [])


def required(pod: Doc, kind: str) -> list[Doc]:
    return _terms(pod, kind, "required")


def preferred(pod: Doc, kind: str) -> list[Doc]:
    return _terms(pod, kind, "preferred")


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
