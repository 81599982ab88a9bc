"""The forest of HyperNodes: parents, children, and the nodes below each (T10).

Derived from all objects at once, so that the outcome does not depend on the order in which they
came. Volcano repairs its forest object by object and can stay ready over a broken one; here it is
ready when every HyperNode has at most one parent and none is above itself.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from shared.api.patterns import BadPattern, finder
from shared.api.selectors import BadSelector, matches
from shared.api.topology import HyperNodeSpec, Member, MemberSelector, MemberType

Labels = Mapping[str, str]


class Forest(Struct, frozen=True, kw_only=True):
    """HyperNodes by name. Members that no object exists for are in it, with tier 0."""

    tiers: Mapping[str, int]
    parents: Mapping[str, str]
    """Child → parent; roots are absent."""
    children: Mapping[str, tuple[str, ...]]
    """Names in alphabetical order; leaves are absent."""
    nodes: Mapping[str, frozenset[str]]
    """HyperNode → names of the nodes below, whether they exist or not."""
    by_tier: Mapping[int, tuple[str, ...]]
    """Tier → names of the HyperNodes that have an object."""
    tier_names: Mapping[str, int]
    ready: bool = True
    """Whether the objects make a forest; jobs with a network topology wait until they do."""

    def ancestors(self, name: str) -> list[str]:
        """Return a HyperNode and those above it, nearest first; a cycle ends the line."""
        line = {name: None}
        at = name
        while (at := self.parents.get(at, "")) and at not in line:
            line[at] = None
        return list(line)

    def common_ancestor(self, one: str, other: str) -> str:
        """Return the lowest HyperNode above both; no name at all is below everything.

        Empty when the two have nothing in common.
        """
        if not one or not other:
            return one or other
        above = set(self.ancestors(one))
        return next((name for name in self.ancestors(other) if name in above), "")

    def below(self, name: str) -> list[str]:
        """Return a HyperNode and all below it, level by level."""
        found = [name]
        seen = {name}
        for current in found:
            fresh = [child for child in self.children.get(current, ()) if child not in seen]
            seen.update(fresh)
            found += fresh
        return found


def forest(specs: Mapping[str, HyperNodeSpec], nodes: Mapping[str, Labels]) -> Forest:
    """Return the forest of these HyperNodes over these nodes.

    Of several parents the one of the lowest tier, then of the first name, gets the child; the
    forest is not ready then, and not while a HyperNode is above itself.
    """
    order = sorted(specs, key=lambda name: (specs[name].tier, name))
    parents: dict[str, str] = {}
    children: dict[str, tuple[str, ...]] = {}
    ready = True
    for name in order:
        member_names = sorted(set(named_members(specs[name].members)))
        own = [child for child in member_names if parents.setdefault(child, name) == name]
        ready = ready and own == member_names
        if own:
            children[name] = tuple(own)
    by_tier: dict[int, list[str]] = {}
    for name in sorted(specs):
        by_tier.setdefault(specs[name].tier, []).append(name)
    below = _Below(specs, nodes)
    reached = {name: below.of(name) for name in order if specs[name].members}
    return Forest(
        tiers=dict.fromkeys(parents, 0) | {name: spec.tier for name, spec in specs.items()},
        parents=parents,
        children=children,
        nodes=reached,
        by_tier={tier: tuple(names) for tier, names in sorted(by_tier.items())},
        tier_names={spec.tier_name: spec.tier for name in order if (spec := specs[name]).tier_name},
        ready=ready and not below.has_cycle,
    )


class _Below:
    """The nodes below each HyperNode, each searched once.

    Depth is the owner's to choose, so that nothing here calls itself.
    """

    def __init__(self, specs: Mapping[str, HyperNodeSpec], nodes: Mapping[str, Labels]) -> None:
        self._specs = specs
        self._nodes = nodes
        self._found: dict[str, frozenset[str]] = {}
        self.has_cycle = False

    def of(self, name: str) -> frozenset[str]:
        """Return the nodes below a HyperNode; one that is above itself adds nothing there."""
        open_: dict[str, None] = {}
        worklist = [name]
        while worklist:
            current = worklist[-1]
            if current in self._found or current not in self._specs:
                worklist.pop()
            elif current in open_:
                worklist.pop()
                del open_[current]
                self._found[current] = self._union(current)
            else:
                open_[current] = None
                children = named_members(self._specs[current].members)
                self.has_cycle = self.has_cycle or any(child in open_ for child in children)
                worklist += (child for child in reversed(children) if child not in open_)
        return self._found.get(name, frozenset())

    def _union(self, name: str) -> frozenset[str]:
        """Return the nodes of all members; the set of an only child is shared, not copied."""
        members = self._specs[name].members
        parts = [self._found.get(child, frozenset[str]()) for child in named_members(members)]
        parts += [
            frozenset(selected(member.selector, self._nodes))
            for member in members
            if member.type is MemberType.NODE
        ]
        parts = [part for part in parts if part]
        return parts[0] if len(parts) == 1 else frozenset().union(*parts)


def named_members(members: Iterable[Member]) -> list[str]:
    """Return the HyperNodes among members; only exact names count."""
    return [
        member.selector.exact_match.name
        for member in members
        if member.type is MemberType.HYPERNODE and member.selector.exact_match is not None
    ]


def selected(selector: MemberSelector, nodes: Mapping[str, Labels]) -> set[str]:
    """Return the nodes that a selector names: one by name, whether it exists or not, or by match.

    A pattern or an expression that cannot be read selects nothing, as does an empty one (T10 ⚠).
    """
    found = set()
    if selector.exact_match is not None:
        if not selector.exact_match.name:
            return set()
        found.add(selector.exact_match.name)
    if selector.regex_match is not None:
        try:
            is_match = finder(selector.regex_match.pattern)
        except BadPattern:
            return set()
        found |= {name for name in nodes if is_match(name)}
    labels = selector.label_match
    if labels is not None and (labels.match_labels or labels.match_expressions):
        try:
            found |= {name for name, have in nodes.items() if matches(labels, have)}
        except BadSelector:
            return set()
    return found


def leaves(specs: Mapping[str, HyperNodeSpec], name: str) -> set[str]:
    """Return the HyperNodes at or below one that consist of nodes; a cycle has none."""
    found: set[str] = set()
    seen: set[str] = set()
    worklist = [name]
    while worklist:
        current = worklist.pop()
        if current in seen or current not in specs:
            continue
        seen.add(current)
        children = [
            member for member in specs[current].members if member.type is MemberType.HYPERNODE
        ]
        if not children:
            found.add(current)
        worklist += named_members(children)
    return found
