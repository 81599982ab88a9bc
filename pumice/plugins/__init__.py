"""Public interface for scheduling plugins: what a plugin sees, what it may contribute.

A plugin is a class with a `name` that is built with its arguments once per cycle and then asked to
`contribute`. It adds functions to extension points; order, tiers, enable flags and the way in which
answers are combined are the engine's business and follow Volcano (SS05 to SS08).

The interface is array-first: predicates and scores are computed for a *task class* (tasks that are
equal in everything that placement reads) over many nodes at once, as numpy arrays. This package
imports neither `services` nor `shared`, so that a plugin in another repository can type against it.
"""

from pumice.plugins.interface import (
    ABSTAIN,
    PERMIT,
    Arguments,
    BoolArray,
    Cluster,
    CodeArray,
    Condition,
    EvictionContext,
    EvictionKind,
    FloatArray,
    Hooks,
    IntArray,
    Invalid,
    Job,
    NodeRows,
    Opinion,
    Plugin,
    Queue,
    Reason,
    Task,
    TaskClass,
    Vote,
    WideScore,
    WideVerdict,
)

__all__ = [
    "ABSTAIN",
    "PERMIT",
    "Arguments",
    "BoolArray",
    "Cluster",
    "CodeArray",
    "Condition",
    "EvictionContext",
    "EvictionKind",
    "FloatArray",
    "Hooks",
    "IntArray",
    "Invalid",
    "Job",
    "NodeRows",
    "Opinion",
    "Plugin",
    "Queue",
    "Reason",
    "Task",
    "TaskClass",
    "Vote",
    "WideScore",
    "WideVerdict",
]
