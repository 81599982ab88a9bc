"""HyperNode (topology.volcano.sh): nodes that are near to each other in the network (C09).

A HyperNode of the lowest tier names nodes, one of a higher tier names HyperNodes; together they are
a forest. `shared.model.hypernodes` makes the forest, this module only says what an object may
state.
"""

import enum
from typing import Annotated

from msgspec import Meta, field

from shared.api.base import DnsName, Int64, Name, View, doc
from shared.api.conditions import Condition
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector

_ONE_WAY = Meta(
    extra_json_schema={
        "x-kubernetes-validations": [
            {
                "message": "Either ExactMatch or RegexMatch or LabelMatch must be specified",
                "rule": "has(self.exactMatch) || has(self.regexMatch) || has(self.labelMatch)",
            },
            {
                "message": "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified",
                "rule": (
                    "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0)"
                    " + (has(self.labelMatch) ? 1 : 0) <= 1"
                ),
            },
        ]
    }
)
"""Volcano's one CEL rule of all CRDs (§1.1)."""


class MemberType(enum.StrEnum):
    """Kind of a member."""

    NODE = "Node"
    HYPERNODE = "HyperNode"


class ExactMatch(View, frozen=True, kw_only=True):
    """The member of that name."""

    name: Annotated[DnsName, Meta(min_length=1), doc("Name of the node or HyperNode.")]


class RegexMatch(View, frozen=True, kw_only=True):
    """All nodes whose name contains a match."""

    pattern: Annotated[str, Meta(min_length=1), doc("Regular expression for names of nodes.")]


class MemberSelector(View, frozen=True, kw_only=True):
    """Selects members; exactly one of the three fields."""

    exact_match: Annotated[ExactMatch, doc("One member by name.")] | None = None
    regex_match: Annotated[RegexMatch, doc("Nodes by name; not for HyperNodes.")] | None = None
    label_match: Annotated[LabelSelector, doc("Nodes by label; not for HyperNodes.")] | None = None


class Member(View, frozen=True, kw_only=True):
    """One entry of the members."""

    type: Annotated[MemberType, doc("Node or HyperNode.")]
    selector: Annotated[MemberSelector, _ONE_WAY, doc("Which nodes or which HyperNode.")] = field(
        default_factory=MemberSelector
    )


class HyperNodeSpec(View, frozen=True, kw_only=True):
    """Where in the network a HyperNode is, and what it consists of."""

    tier: Annotated[int, Meta(ge=0), doc("Height in the network: lower is nearer.")]
    tier_name: Annotated[Name, doc("Name of the tier, which jobs may ask for.")] = ""
    members: Annotated[tuple[Member, ...], Meta(min_length=1), doc("Nodes or HyperNodes.")] = ()


class HyperNodeStatus(View, frozen=True, kw_only=True):
    """Status of a HyperNode."""

    conditions: Annotated[tuple[Condition, ...], doc("Latest conditions.")] = ()
    node_count: Annotated[Int64, Meta(ge=0), doc("Number of nodes below.")] = 0


class HyperNode(View, frozen=True, kw_only=True):
    """A group of nodes near to each other."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[HyperNodeSpec, doc("Desired state.")] = HyperNodeSpec(tier=0)
    status: Annotated[HyperNodeStatus, doc("Observed state.")] = HyperNodeStatus()
