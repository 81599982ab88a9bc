"""Nodes on which claims can be allocated, cached per shape: equal claims share one result.

The pods of a gang have claims of their own, made from one template. The result for one of them
holds for the next, except on nodes that reach a pool in which a device was allocated or released.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from pumice.plugins import BoolArray, CodeArray
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.policy.devices.allocation import WORK_MAX, allocate
from services.scheduler.policy.devices.pools import DeviceId, Inventory, OfferedPool, PoolKey
from services.scheduler.policy.devices.requests import (
    ClaimRequest,
    DeviceMatcher,
    DeviceRefusal,
    ResultUnknown,
    SearchBudget,
)
from services.scheduler.policy.devices.shares import NOTHING, AllocatedDevices
from shared.api.resource import AllocationResult
from shared.api.selectors import NodeSelector

FITS, LACKING, IN_USE, PENDING = range(4)
"""Codes: allocatable; the node lacks such devices; they are in use; not known yet."""
_BUDGET: Final = 8 * WORK_MAX
"""Work of one session, about 0.25 s. The rest continues in the next session."""
_SHAPE_BUDGET: Final = 2 * WORK_MAX
"""Work for claims of one shape in one session."""
_PROBED: Final = 16
_ASKED: Final = 1_024
"""Most expression results that one query requests, for a new shape and for a known one. So claims
whose expressions are never evaluated cost no more than a few nodes.
"""
_CHANGES_MAX: Final = 100_000
_SHAPES_MAX: Final = 10_000


class FitResult(NamedTuple):
    """The cached result of one shape."""

    codes: CodeArray
    """Each node's code."""
    seen: int
    """Number of pool changes that it includes."""
    unknown: ResultUnknown | None = None
    """Missing expression result; without it pending nodes need not be checked again."""
    fault: str = ""
    """Error in the claims; empty if none."""
    claim: int = 0
    """Index of the claim with the error."""


class SearchShares:
    """The work of searching devices in one session, shared by the namespaces whose claims need it.

    Each may use an equal share, at least a whole search on one node. Namespaces that got nothing
    come first in the next session, so claims of ever new shapes delay only their own namespace.
    """

    def __init__(self, total: int, *, least: int) -> None:
        """`total` is the limit of a session in device checks, `least` that of one search."""
        self._total = total
        self._least = least
        self._left = total
        self._asked: dict[str, None] = {}
        """Namespaces that have requested work in this session, in that order."""
        self._spent: Counter[str] = Counter()
        self._sharers = 0
        """How many asked in the session before."""
        self._first: tuple[str, ...] = ()
        """Namespaces that got nothing then, as many as can have a turn now."""

    def begin(self) -> None:
        """Begin a session."""
        denied = dict.fromkeys(
            name for name in (*self._first, *self._asked) if self._is_denied(name)
        )
        self._first = tuple(islice(denied, self._total // self._least))
        self._sharers = len(self._asked)
        self._left = self._total
        self._asked.clear()
        self._spent.clear()

    def _is_denied(self, namespace: str) -> bool:
        return namespace in self._asked and not self._spent[namespace]

    def allowance(self, namespace: str) -> int:
        """Return how many device checks a namespace may still use."""
        self._asked[namespace] = None
        share = max(self._least, self._total // max(self._sharers, len(self._asked)))
        turns = sum(name != namespace and not self._spent[name] for name in self._first)
        return max(0, min(share - self._spent[namespace], self._left - turns * self._least))

    def spend(self, namespace: str, looks: int) -> None:
        """Record the device checks that a namespace has used."""
        self._left -= looks
        self._spent[namespace] += looks


class DeviceCheckBudget:
    """The work of one query, in device checks."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.spent = 0

    @property
    def left(self) -> int:
        """Remaining work."""
        return self._most - self.spent

    def for_a_node(self) -> SearchBudget:
        """Return the work limit for one node."""
        return SearchBudget(min(WORK_MAX, self.left))


class Fits:
    """Computes and caches the results for all nodes of one cluster."""

    def __init__(self, inventory: Inventory, matcher: DeviceMatcher) -> None:
        self._inventory = inventory
        self._judge = matcher
        self._answers: dict[Hashable, FitResult] = {}
        self._changed: list[PoolKey] = []
        self._versions: Hashable = None
        self._offers: dict[str, tuple[OfferedPool, ...]] = {}
        self._masks: dict[NodeSelector, BoolArray] = {}
        self._columns: dict[str, int] = {}
        self._budget = SearchShares(_BUDGET, least=WORK_MAX)
        self._spent: Counter[Hashable] = Counter()
        """Shape → the work that it has taken in this session."""

    @property
    def failure(self) -> str:
        """Why no selector is evaluated at present, "" while they are."""
        return self._judge.failure

    def note(self, device: DeviceId) -> None:
        """Record that a device was allocated or released."""
        self._changed.append((device.driver, device.pool))
        if len(self._changed) > _CHANGES_MAX:
            self.forget()

    def begin(self) -> None:
        """Begin a session: work beyond the limit of the last one continues."""
        self._budget.begin()
        self._spent.clear()
        self._judge.begin()

    def forget(self) -> None:
        """Drop all results, because device classes have changed."""
        self._versions = None

    def column(self, name: str, attributes: NodeAttributes) -> int:
        """Return the column of a node, -1 when it has none."""
        self._keep_up(attributes)
        return self._columns.get(name, -1)

    def allocate(
        self,
        asks: Sequence[ClaimRequest],
        attributes: NodeAttributes,
        column: int,
        taken: AllocatedDevices,
        budget: SearchBudget | None = None,
    ) -> tuple[AllocationResult, ...] | DeviceRefusal:
        """Return the devices of claims on one node, or why there are none."""
        self._keep_up(attributes)
        name = attributes.names[column]
        return allocate(
            asks,
            self._offer(name, column, attributes),
            node=name,
            taken=taken,
            matcher=self._judge,
            budget=budget,
        )

    def answer(
        self,
        shape: Hashable,
        asks: Sequence[ClaimRequest],
        attributes: NodeAttributes,
        taken: AllocatedDevices,
        *,
        owner: str,
    ) -> FitResult:
        """Return the result for claims of one shape on all nodes, on behalf of a namespace."""
        self._keep_up(attributes)
        known = self._answers.get(shape)
        if known is None:
            columns: Sequence[int] = range(len(attributes.names))
            codes = np.full(len(attributes.names), PENDING, dtype=np.uint8)
        else:
            columns, codes = self._due(known, attributes), known.codes
            if not columns:
                known = self._answers[shape] = known._replace(seen=len(self._changed))
                return known
            codes[columns] = PENDING
        fault, unknown, unknown_count = DeviceRefusal(""), None, 0
        most_asked = _PROBED if known is None else _ASKED
        work = DeviceCheckBudget(
            min(self._budget.allowance(owner), _SHAPE_BUDGET - self._spent[shape])
        )
        for column in columns:
            if work.left <= 0 or unknown_count >= most_asked:
                break
            budget = work.for_a_node()
            found = self._on_node(asks, attributes, column, taken, budget=budget, work=work)
            unknown = unknown or budget.unknown
            unknown_count += budget.unknowns
            if isinstance(found, DeviceRefusal) and found.fault:
                fault = found
                break
            if not isinstance(found, DeviceRefusal) or not found.unfinished:
                codes[column] = self._code(found, asks, attributes, column, taken, work=work)
        self._spent[shape] += work.spent
        self._budget.spend(owner, work.spent)
        if unknown is None and known is not None and PENDING in codes:
            unknown = known.unknown
        if len(self._answers) >= _SHAPES_MAX:
            self._answers.clear()
        result = self._answers[shape] = FitResult(
            codes, len(self._changed), unknown, fault.text, fault.claim
        )
        return result

    def _on_node(
        self,
        asks: Sequence[ClaimRequest],
        attributes: NodeAttributes,
        column: int,
        taken: AllocatedDevices,
        *,
        budget: SearchBudget,
        work: DeviceCheckBudget,
    ) -> tuple[AllocationResult, ...] | DeviceRefusal:
        """Allocate on one node, within the remaining work."""
        if not attributes.names[column]:
            return DeviceRefusal("no node")
        before = budget.left
        found = self.allocate(asks, attributes, column, taken, budget)
        work.spent += before - budget.left
        if isinstance(found, DeviceRefusal) and budget.left <= 0 and before < WORK_MAX:
            return found._replace(unfinished=True)
        return found

    def _code(
        self,
        found: tuple[AllocationResult, ...] | DeviceRefusal,
        asks: Sequence[ClaimRequest],
        attributes: NodeAttributes,
        column: int,
        taken: AllocatedDevices,
        *,
        work: DeviceCheckBudget,
    ) -> int:
        if not isinstance(found, DeviceRefusal):
            return FITS
        if not taken.devices:
            return LACKING
        budget = work.for_a_node()
        alone = self._on_node(asks, attributes, column, NOTHING, budget=budget, work=work)
        if not isinstance(alone, DeviceRefusal):
            return IN_USE
        return PENDING if alone.unfinished else LACKING

    def _due(self, known: FitResult, attributes: NodeAttributes) -> Sequence[int]:
        """Return the columns whose result may have changed, or that are pending."""
        found = self._changed_columns(known, attributes)
        pending = np.flatnonzero(known.codes == PENDING).tolist()
        if known.fault:
            return sorted(found)
        if known.unknown is not None and not self._judge.is_known(known.unknown):
            # Pending nodes cannot be decided yet, even if they changed.
            return sorted(found.difference(pending))
        return sorted(found.union(pending))

    def _changed_columns(self, known: FitResult, attributes: NodeAttributes) -> set[int]:
        found: set[int] = set()
        for pool in dict.fromkeys(self._changed[known.seen :]):
            nodes = self._inventory.nodes_of(pool)
            if nodes is None or known.fault:
                return set(range(len(attributes.names)))
            found.update(self._columns[name] for name in nodes if name in self._columns)
        return found

    def _keep_up(self, attributes: NodeAttributes) -> None:
        versions = (self._inventory.version, attributes.generation, len(attributes.names))
        if versions != self._versions:
            self._versions = versions
            self._columns = {name: at for at, name in enumerate(attributes.names) if name}
            self._offers.clear()
            self._masks.clear()
            self._answers.clear()
            self._changed.clear()

    def _offer(self, name: str, column: int, attributes: NodeAttributes) -> tuple[OfferedPool, ...]:
        found = self._offers.get(name)
        if found is None:

            def selects(selector: NodeSelector) -> bool:
                mask = self._masks.get(selector)
                if mask is None:
                    mask = self._masks[selector] = attributes.selected(selector)
                return bool(mask[column])

            found = self._offers[name] = self._inventory.offer(name, selects)
        return found
