"""The result of an allocation, in the form of a claim's status."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from msgspec.structs import replace

from services.scheduler.cel.frames import qualified
from services.scheduler.policy.devices.pools import DeviceId, Offered
from services.scheduler.policy.devices.requests import Alternative
from services.scheduler.policy.devices.shares import Parts, added
from shared.api.resource import (
    AllocationResult,
    DeviceAllocation,
    DeviceAttribute,
    DeviceClaim,
    DeviceConfiguration,
    DeviceResult,
)
from shared.api.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from shared.model.quantity import format_milli, milli

_SHARES: Final = UUID("6f1c52f4-3f0a-4f0e-9d53-6c1f7ab8f0d1")
"""Namespace of the UUIDs of shares; any fixed value works."""


class DeviceChoice(NamedTuple):
    """One device for one request."""

    claim: int
    alternative: Alternative
    offered: Offered
    part: Parts
    """Consumed amounts of the device's capacities."""


def result_of(claim: DeviceClaim, chosen: Sequence[DeviceChoice], node: str) -> AllocationResult:
    """Return the allocation of one claim, with the parameters for the drivers.

    Shares of devices have an empty id: `with_share_ids` gives them theirs.
    """
    results = tuple(
        DeviceResult(
            request=choice.alternative.name,
            driver=choice.offered.id.driver,
            pool=choice.offered.id.pool,
            device=choice.offered.id.device,
            admin_access=True if choice.alternative.admin else None,
            tolerations=choice.alternative.asks.tolerations,
            share_id="" if choice.offered.is_shared else None,
            consumed_capacity={name: format_milli(amount) for name, amount in choice.part.items()}
            if choice.offered.is_shared
            else {},
            binding_conditions=choice.offered.device.binding_conditions,
            binding_failure_conditions=choice.offered.device.binding_failure_conditions,
        )
        for choice in chosen
    )
    used = list({choice.alternative.name: choice.alternative for choice in chosen}.values())
    return AllocationResult(
        devices=DeviceAllocation(results=results, config=tuple(_config(claim, used))),
        node_selector=_reach([choice.offered for choice in chosen], node),
    )


def shared_parts(allocation: AllocationResult | None) -> dict[DeviceId, dict[str, int]]:
    """Return the amounts of shared devices in an allocation."""
    found: dict[DeviceId, dict[str, int]] = {}
    for result in allocation.devices.results if allocation is not None else ():
        if result.share_id is not None and not result.admin_access:
            device = DeviceId(result.driver, result.pool, result.device)
            part = {name: milli(each) for name, each in result.consumed_capacity.items()}
            found[device] = added([found.get(device, {}), part])
    return found


def with_share_ids(allocation: AllocationResult, claim_uid: str) -> AllocationResult:
    """Return an allocation with an id for each share: the same one for the same claim again."""
    results = tuple(
        replace(result, share_id=str(uuid5(_SHARES, f"{claim_uid}/{number}")))
        if result.share_id is not None
        else result
        for number, result in enumerate(allocation.devices.results)
    )
    return replace(allocation, devices=replace(allocation.devices, results=results))


def attribute(offered: Offered, name: str) -> DeviceAttribute | None:
    """Return an attribute by its full name; the driver's own need no domain on the device."""
    attributes = offered.device.attributes
    domain, short = qualified(name, "")
    return attributes.get(name) or (attributes.get(short) if domain == offered.id.driver else None)


def _config(claim: DeviceClaim, used: Sequence[Alternative]) -> list[DeviceConfiguration]:
    """Return the parameters of the classes, once each, then those of the claim.

    Parameters for all requests name none, as in Kubernetes 1.37.
    """
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
    return [
        replace(config, requests=())
        if all({each.request, each.name} & set(config.requests) for each in used)
        else config
        for config in found
    ]


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
