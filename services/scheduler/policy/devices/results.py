"""The result of an allocation as a claim's status holds it."""

from collections.abc import Sequence
from typing import NamedTuple

from services.scheduler.policy.devices.pools import Offered
from services.scheduler.policy.devices.requests import Alternative
from services.scheduler.policy.devices.selectors import qualified
from shared.api.resource import (
    AllocationResult,
    DeviceAllocation,
    DeviceAttribute,
    DeviceClaim,
    DeviceConfiguration,
    DeviceResult,
)
from shared.api.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm


class Choice(NamedTuple):
    """One device for one request."""

    claim: int
    alternative: Alternative
    offered: Offered


def result_of(claim: DeviceClaim, chosen: Sequence[Choice], node: str) -> AllocationResult:
    """Return what is chosen for one claim, with the parameters for the drivers."""
    results = tuple(
        DeviceResult(
            request=choice.alternative.name,
            driver=choice.offered.id.driver,
            pool=choice.offered.id.pool,
            device=choice.offered.id.device,
            admin_access=True if choice.alternative.admin else None,
            tolerations=choice.alternative.asks.tolerations,
        )
        for choice in chosen
    )
    used = list({choice.alternative.name: choice.alternative for choice in chosen}.values())
    return AllocationResult(
        devices=DeviceAllocation(results=results, config=tuple(_config(claim, used))),
        node_selector=_reach([choice.offered for choice in chosen], node),
    )


def attribute(offered: Offered, name: str) -> DeviceAttribute | None:
    """Return an attribute by its full name; the driver's own need no domain on the device."""
    attributes = offered.device.attributes
    domain, short = qualified(name, "")
    return attributes.get(name) or (attributes.get(short) if domain == offered.id.driver else None)


def _config(claim: DeviceClaim, used: Sequence[Alternative]) -> list[DeviceConfiguration]:
    """Return the parameters of the classes, once each, then those of the claim."""
    classes: dict[str, list[Alternative]] = {}
    for alternative in used:
        classes.setdefault(alternative.asks.device_class_name, []).append(alternative)
    found = [
        DeviceConfiguration(
            source="FromClass",
            requests=tuple(alternative.name for alternative in alternatives),
            opaque=config.opaque,
        )
        for alternatives in classes.values()
        for config in alternatives[0].device_class.spec.config
    ]
    names = {alternative.request for alternative in used} | {each.name for each in used}
    found += [
        DeviceConfiguration(source="FromClaim", requests=config.requests, opaque=config.opaque)
        for config in claim.config
        if not config.requests or names & set(config.requests)
    ]
    return found


def _reach(offered: Sequence[Offered], node: str) -> NodeSelector | None:
    """Return which nodes reach all these devices, None when all do."""
    if any(each.node_name or each.device.binds_to_node for each in offered):
        only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
    terms = [
        term
        for each in offered
        if each.node_selector is not None
        for term in each.node_selector.node_selector_terms[:1]
    ]
    if not terms:
        return None
    expressions = dict.fromkeys(need for term in terms for need in term.match_expressions)
    fields = dict.fromkeys(need for term in terms for need in term.match_fields)
    merged = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(merged,))
