"""Accounts of queues for the plugin capacity: a tree, or one level; pure arithmetic (PL06).

An account has the allocated and requested amounts of its queue and all queues below it. In the flat
form every queue that owns jobs has one; in the hierarchical form every queue has one, `root` above
all.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from pumice.plugins import BoolArray, FloatArray, IntArray, Queue
from services.scheduler.engine.resources.amounts import total_of
from services.scheduler.engine.resources.dimensions import CPU_DIM, MEMORY_DIM
from services.scheduler.policy.shares import dominant_share, exceeded, is_empty
from shared.api.scheduling import ROOT_QUEUE
from shared.model.resources import EPSILON

_NATIVE: Final = (CPU_DIM, MEMORY_DIM)


class QueueAccount:
    """Allocated, requested and deserved amounts, and the limit, of one queue in this session."""

    __slots__ = (
        "allocated",
        "ancestors",
        "capability",
        "children",
        "deserved",
        "deserves",
        "elastic",
        "guarantee",
        "inqueue",
        "leaving",
        "limit",
        "name",
        "named",
        "request",
    )

    def __init__(self, queue: Queue, size: int) -> None:
        """Store what a queue states; `size` is the length of an amounts array."""
        self.name = queue.name
        self.deserved: FloatArray = queue.deserved.astype(np.float64)
        self.named: BoolArray = np.zeros(size, dtype=np.bool_)
        """Resources that `deserved` names, even with 0; CPU and memory only with more."""
        self.named[list(queue.deserved_dims)] = True
        self.guarantee: IntArray = queue.guarantee
        self.allocated, self.request, self.inqueue, self.elastic = np.zeros((4, size), np.int64)
        self.leaving: IntArray = np.zeros(size, np.int64)
        """Amounts of terminating pods, where they count against limits."""
        self.capability: FloatArray = np.full(size, np.inf)
        """Capability of the queue or of the nearest parent that states one; else infinite."""
        self.limit: FloatArray = np.zeros(size)
        """The most that it can have: its capability, less what other queues are guaranteed."""
        self.ancestors: tuple[QueueAccount, ...] = ()
        """From `root` down to the parent."""
        self.children: list[QueueAccount] = []
        self.deserves = False

    def settle(self) -> None:
        """Compute whether the queue deserves anything, once `deserved` is final."""
        self.deserves = not is_empty(self.deserved)
        for dim in _NATIVE:
            self.named[dim] = self.deserved[dim] >= EPSILON

    @property
    def share(self) -> float:
        """The largest allocated/deserved; ⚠ 1 for a queue that deserves nothing (PL06)."""
        return dominant_share(self.allocated, self.deserved) if self.deserves else 1.0

    @property
    def rank(self) -> tuple[float, bool]:
        """Sort key, smaller first: by share, then queues that deserve something."""
        return self.share, not self.deserves

    def lineage(self) -> Iterator["QueueAccount"]:
        """Return the account and its ancestors, bottom up."""
        yield self
        yield from reversed(self.ancestors)

    def add_usage(self, sums: IntArray) -> None:
        """Add allocated, requested, inqueue and elastic amounts of the queue's jobs."""
        for account in self.lineage():
            account.allocated = account.allocated + sums[0]
            account.request = account.request + sums[1]
            account.inqueue = account.inqueue + sums[2]
            account.elastic = account.elastic + sums[3]

    def hold(self, amounts: IntArray) -> None:
        """Add placed amounts; negative ones undo."""
        for account in self.lineage():
            account.allocated = account.allocated + amounts

    def reserve(self, amounts: IntArray) -> None:
        """Add what a job reserves by entering the queue."""
        for account in self.lineage():
            account.inqueue = account.inqueue + amounts

    def ancestor(self, level: int) -> "QueueAccount | None":
        """Return the account `level` above, 1 being the parent."""
        return self.ancestors[-level] if level <= len(self.ancestors) else None

    def near_ancestors(self, levels: int) -> Iterator["QueueAccount"]:
        """Return the ancestors up to `levels` above, bottom up, without `root`."""
        for account in reversed(self.ancestors[max(0, len(self.ancestors) - levels) :]):
            if account.name != ROOT_QUEUE:
                yield account


Accounts = dict[str, QueueAccount]


def flat(
    queues: Mapping[str, Queue],
    sums: Mapping[str, IntArray],
    total: IntArray,
    dims: Mapping[str, Mapping[int, int]],
) -> Accounts:
    """Return an account per queue that owns jobs.

    `sums` are allocated, request, inqueue and elastic per queue, `dims` the stated capabilities by
    dimension.
    """
    guaranteed = total_of((q.guarantee for q in queues.values()), total)
    known = (total > 0) | (guaranteed > 0)
    accounts = {}
    for name, usage in sums.items():
        account = accounts[name] = QueueAccount(queues[name], len(total))
        account.add_usage(usage)
        for dim, amount in dims[name].items():
            account.capability[dim] = amount
        limit = (exceeded(total, guaranteed) + account.guarantee).astype(np.float64)
        account.limit = np.minimum(limit, account.capability)
        capped = np.where(known, np.minimum(account.deserved, account.limit), account.deserved)
        account.deserved = np.maximum(capped, account.guarantee)
        account.settle()
    return accounts


def tree(
    queues: Mapping[str, Queue],
    sums: Mapping[str, IntArray],
    total: IntArray,
    dims: Mapping[str, Mapping[int, int]],
) -> Accounts | None:
    """Return an account per queue, or None if the hierarchy is invalid (PL06).

    It is invalid if `root` or a parent is missing, parents form a cycle, or a queue has both
    children and jobs: jobs are submitted to leaves only.
    """
    accounts = {name: QueueAccount(queue, len(total)) for name, queue in queues.items()}
    if ROOT_QUEUE not in accounts or not _connect(accounts, queues):
        return None
    for name, usage in sums.items():
        if accounts[name].children:
            return None
        accounts[name].add_usage(usage)
    root = accounts[ROOT_QUEUE]
    _open_root(root, total, dims[ROOT_QUEUE])
    worklist = [root]
    while worklist:
        account = worklist.pop()
        _settle_children(account, dims)
        worklist += account.children
    for account in accounts.values():
        account.settle()
    return accounts


def _connect(accounts: Accounts, queues: Mapping[str, Queue]) -> bool:
    """Set every account's ancestors; False when a chain of parents does not end at `root`."""
    for name, account in accounts.items():
        chain: list[QueueAccount] = []
        seen = {name}
        at = name
        while at != ROOT_QUEUE:
            at = queues[at].parent or ROOT_QUEUE
            if at in seen or at not in accounts:
                return False
            seen.add(at)
            chain.append(accounts[at])
        account.ancestors = tuple(reversed(chain))
        if chain:
            chain[0].children.append(account)
    return True


def _open_root(root: QueueAccount, total: IntArray, stated: Mapping[int, int]) -> None:
    """Set the limit of `root`: its capability, else the cluster's total."""
    root.limit = np.zeros(len(total))
    if stated:
        root.capability[list(_NATIVE)] = 0.0
        for dim, amount in stated.items():
            root.capability[dim] = root.limit[dim] = amount
        return
    known = total > 0
    known[list(_NATIVE)] = True
    root.limit[known] = np.inf


def _settle_children(account: QueueAccount, dims: Mapping[str, Mapping[int, int]]) -> None:
    """Compute guarantees, deserved amounts and limits of an account's children."""
    children = account.children
    size = len(account.limit)
    for child in children:
        child.deserved = np.maximum(child.deserved, child.guarantee)
        child.capability = account.capability.copy()
        for dim, amount in dims[child.name].items():
            child.capability[dim] = amount
    guaranteed = total_of((c.guarantee for c in children), np.zeros(size, np.int64))
    if account.name == ROOT_QUEUE:
        account.guarantee = guaranteed
        account.deserved = sum((c.deserved for c in children), start=np.zeros(size))
    for child in children:
        limit = np.maximum(account.limit - guaranteed, 0) + child.guarantee
        child.limit = np.minimum(limit, child.capability)


# --- relations between queues ----------------------------------------------------------------


def common_depth(left: QueueAccount, right: QueueAccount) -> int:
    """Return the depth of the lowest common ancestor of two queues: 0 for `root`, or none."""
    level = 0
    for at, (one, other) in enumerate(zip(left.ancestors, right.ancestors, strict=False)):
        if one is not other:
            break
        level = at
    return level


def compare(left: QueueAccount, right: QueueAccount) -> int:
    """Return -1, 0 or 1: which of two queues of a tree is served first.

    Leaves go before others. Two leaves are compared by their ancestors below the lowest common one.
    """
    if bool(left.children) != bool(right.children):
        return 1 if left.children else -1
    if not left.children:
        below = common_depth(left, right) + 1
        left, right = _branch(left, below), _branch(right, below)
    return (left.rank > right.rank) - (left.rank < right.rank)


def _branch(account: QueueAccount, level: int) -> QueueAccount:
    return account.ancestors[level] if level < len(account.ancestors) else account
