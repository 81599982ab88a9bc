"""Public interface for scheduling plugins: the objects that a plugin reads and contributes.

A plugin is a class with a `name` that is built with its arguments once per cycle and then asked to
`contribute`. It adds functions to extension points; order, tiers, enable flags and the way in which
answers are combined are the engine's business and follow Volcano (SS05 to SS08).

The interface is array-first: predicates and scores are computed for a *task class* (tasks that are
equal in everything that placement reads) over many nodes at once, as numpy arrays. This package
imports neither `services` nor `shared`, so that a plugin in another repository can type against it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.plugins.interface import (
        Cluster,
        EvictionContext,
        Job,
        Measure,
        NodeRows,
        Nodes,
        PlacementTarget,
        Queue,
        Rollup,
        SubJob,
        Task,
        TaskClass,
    )
    from pumice.plugins.points import Hooks, Plugin
    from pumice.plugins.states import Fold, Journal, PolicyState, PublishedBind
    from pumice.plugins.status import TaskStatus
    from pumice.plugins.values import (
        ABSTAIN,
        NODE_MAX,
        PERMIT,
        POD_MAX,
        Amounts,
        Arguments,
        BoolArray,
        ClaimUse,
        CodeArray,
        Condition,
        CrossNodeScore,
        CrossNodeVerdict,
        DeviceUse,
        EvictionKind,
        FloatArray,
        IntArray,
        Invalid,
        NodeGroups,
        Opinion,
        QueueFigures,
        Reason,
        StartBlock,
        Vote,
    )

__all__ = [
    "ABSTAIN",
    "NODE_MAX",
    "PERMIT",
    "POD_MAX",
    "Amounts",
    "Arguments",
    "BoolArray",
    "ClaimUse",
    "Cluster",
    "CodeArray",
    "Condition",
    "CrossNodeScore",
    "CrossNodeVerdict",
    "DeviceUse",
    "EvictionContext",
    "EvictionKind",
    "FloatArray",
    "Fold",
    "GroupOf",
    "Hooks",
    "IntArray",
    "Invalid",
    "Job",
    "Journal",
    "Measure",
    "NodeGroups",
    "NodeRows",
    "Nodes",
    "Opinion",
    "PlacementTarget",
    "Plugin",
    "PolicyState",
    "PublishedBind",
    "Queue",
    "QueueFigures",
    "Reason",
    "Rollup",
    "StartBlock",
    "SubJob",
    "Task",
    "TaskClass",
    "TaskStatus",
    "Vote",
]
_PARTS = ("status", "values", "interface", "points", "states")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the interface has of that name
    """Import the interface, and numpy with it, when something of it is asked for first.

    `pumice.plugins.jobs` is below this package, and job plugins need no numpy.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    parts = (importlib.import_module(f"pumice.plugins.{part}") for part in _PARTS)
    return next(getattr(part, name) for part in parts if hasattr(part, name))
