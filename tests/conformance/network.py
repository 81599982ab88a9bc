"""HyperNodes in cases: recorded maps that no objects lead to, places of jobs, pure functions."""

from collections import Counter
from typing import Any

import msgspec
import numpy as np

from services.scheduler.engine.jobs.subjobs import SubJob, match_values
from services.scheduler.engine.nodes.hypernodes import Layout
from services.scheduler.engine.placement.choice import PlacementTarget
from services.scheduler.engine.session.network import Network
from services.scheduler.engine.session.session import Session
from shared.api.scheduling import SubGroupPolicy
from shared.api.topology import HyperNode, MemberSelector
from shared.model.hypernodes import Forest, forest, leaves, named_members, selected
from shared.model.status import TaskStatus
from tests.conformance.report import Mismatch, Unsupported, expect


def prepare(session: Session, given: dict[str, Any]) -> None:
    """Set what the recorded test had set on the session."""
    if given.get("hyperNodesConsistent") is False:
        session.network = Network(Layout(_injected(given), session.cluster_state.nodes))
    for sub, name in given.get("nominatedHyperNodes", {}).items():
        session.network.nominated[sub] = name


def _injected(given: dict[str, Any]) -> Forest:
    """Return the forest of the injected maps; entries go by the name of the object under a key."""
    objects = [msgspec.convert(obj, HyperNode, strict=False) for obj in given["hyperNodes"]]
    stored = given.get("hyperNodeMap") or {
        obj.metadata.name: {"name": obj.metadata.name, "tier": obj.spec.tier} for obj in objects
    }
    children = {
        obj.metadata.name: tuple(
            sorted({stored[c]["name"] for c in named_members(obj.spec.members) if c in stored})
        )
        for obj in objects
    }
    return Forest(
        tiers={entry["name"]: entry["tier"] for entry in stored.values()},
        parents={child: parent for parent, below in children.items() for child in below},
        children=children,
        nodes={name: frozenset(nodes) for name, nodes in given["realNodes"].items()},
        by_tier={
            int(tier): tuple(sorted(names)) for tier, names in given["hyperNodesByTier"].items()
        },
        tier_names={
            entry["tierName"]: entry["tier"] for entry in stored.values() if entry.get("tierName")
        },
    )


class Places:
    """Where jobs and their binds are in the network at the end of a session."""

    def __init__(self, session: Session, binds: dict[str, str], given: dict[str, Any]) -> None:
        network = session.network
        jobs = [job for job in session.cluster_state.jobs.all() if job.sub_jobs is not None]
        stored = given.get("hyperNodeMap", {})
        self.comparable = all(key == entry["name"] for key, entry in stored.items())
        """Not where an object lies under another's name: Volcano then mixes the two up."""
        self.jobs = {job.key: place for job in jobs if (place := network.allocated(job))}
        self.subs = {
            sub.id: place
            for job in jobs
            for sub in job.sub_jobs.by_id().values()
            if (place := network.allocated(job, sub))
            and (sub.policy or place != self.jobs.get(job.key, ""))
        }
        column = session.cluster_state.nodes.column
        self.binds = Counter(network.leaf(column(node)) for node in binds.values())


def check_places(wanted: dict[str, Any], places: Places) -> None:
    """Compare with an outcome or with invariants; raises `Mismatch`."""
    if "allocatedHyperNodes" in wanted and places.comparable:
        expect("allocatedHyperNodes", places.jobs, wanted["allocatedHyperNodes"])
    if "subJobHyperNodes" in wanted and places.comparable:
        expect("subJobHyperNodes", places.subs, wanted["subJobHyperNodes"])
    per_tier = wanted.get("bindsPerLowestTierHyperNode")
    if per_tier is not None:
        expect("bindsPerLowestTierHyperNode", dict(places.binds), per_tier)
    counts = wanted.get("bindsPerLowestTierHyperNodeSorted", wanted.get("bindNumsInHyperNode"))
    if counts is not None:
        expect("binds per HyperNode", sorted(places.binds.values()), sorted(counts))


# --- probes ----------------------------------------------------------------------------------


def batch_node_order(session: Session, probe: dict[str, Any]) -> None:
    """Compare the scores that depend on other nodes."""
    asked, nodes = probe["args"][0]["task"], probe["args"][1]["nodes"]
    key = asked if isinstance(asked, str) else asked["task"]
    task = next((t for t in session.cluster_state.tasks() if t.key == key), None)
    job = session.job_of(task) if task else None
    if task is None or job is None:
        raise Unsupported(f"task {key} is not in the session")
    sub = job.sub_jobs.of_task(task) if job.sub_jobs else None
    so_far = "" if isinstance(asked, str) else asked["jobAllocatedHyperNode"]
    columns = np.array([session.cluster_state.nodes.column(node) for node in nodes])
    order = np.argsort(columns)
    mask = np.zeros(session.ledger.size, dtype=np.bool_)
    mask[columns] = True
    total = np.zeros(len(columns))
    bias = session.hooks.batch_node_order(
        PlacementTarget(job, sub, so_far), task.task_class, columns[order]
    )
    if bias is not None:
        total[order] += bias
    rank = session.candidates(task.task_class).ranked(mask)
    if rank is not None:
        total += rank[columns]
    _compare(dict(zip(nodes, total.tolist(), strict=True)), probe.get("result") or {})


def hypernode_order(session: Session, probe: dict[str, Any]) -> None:
    """Compare the scores of HyperNodes for a subgroup."""
    sub = _sub(session, probe["args"][0]["subJob"])
    names = sorted(probe["args"][1]["hyperNodes"])
    scores = dict(zip(names, session.hooks.hypernode_score(sub, names), strict=True))
    wanted = Counter[str]()
    for per_plugin in probe["result"].values():
        wanted.update(per_plugin)
    _compare(scores, wanted)


def _sub(session: Session, identity: str) -> SubJob:
    for job in session.jobs:
        if job.sub_jobs is not None and identity in job.sub_jobs.by_id():
            return job.sub_jobs.by_id()[identity]
    raise Unsupported(f"subgroup {identity} is not in the session")


def _compare(scores: dict[str, float], wanted: dict[str, float]) -> None:
    for name, score in scores.items():
        if abs(score - wanted.get(name, 0)) > 1e-6:
            raise Mismatch(f"score of {name}: {score}, recorded {wanted.get(name, 0)}")


PROBES = {"BatchNodeOrderFn": batch_node_order, "HyperNodeOrderMapFn": hypernode_order}


# --- pure functions ----------------------------------------------------------------------------


def run_pure(case: dict[str, Any]) -> None:
    """Run a case of kind `api` that is about HyperNodes or subgroups; raises `Mismatch`."""
    expect(case["function"], PURE[case["function"]](case), _normal(case["results"]))


def _normal(results: Any) -> Any:
    if isinstance(results, dict):
        return results
    return [sorted(r) if isinstance(r, list) else r for r in results]


def _specs(objects: list[dict[str, Any]]) -> dict[str, Any]:
    views = [msgspec.convert(obj, HyperNode, strict=False) for obj in objects]
    return {view.metadata.name: view.spec for view in views}


def _updated(case: dict[str, Any]) -> Any:
    specs = _specs([*case["hyperNodes"], *case.get("updates", [])])
    nodes = {
        node["metadata"]["name"]: node["metadata"].get("labels", {})
        for node in case.get("nodes", [])
    }
    made = forest(specs, nodes)
    return {
        "byTier": {str(tier): list(names) for tier, names in made.by_tier.items()},
        "hyperNodes": {
            name: {
                "children": list(made.children.get(name, ())),
                "parent": made.parents.get(name, ""),
                "tier": tier,
            }
            for name, tier in sorted(made.tiers.items())
        },
        "ready": made.ready,
        "realNodes": {name: sorted(below) for name, below in sorted(made.nodes.items())},
    }


def _tree(case: dict[str, Any]) -> Forest:
    stated = case["hyperNodes"]
    if isinstance(stated, list):
        return forest(_specs(stated), {})
    return Forest(
        tiers={name: one.get("tier", 0) for name, one in stated.items()},
        parents={name: one["parent"] for name, one in stated.items() if one.get("parent")},
        children={},
        nodes={},
        by_tier={},
        tier_names={},
    )


def _members(case: dict[str, Any]) -> Any:
    selector = msgspec.convert(case["selector"], MemberSelector, strict=False)
    nodes = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in case["nodes"]}
    return [sorted(selected(selector, nodes))]


def _values(case: dict[str, Any]) -> Any:
    policy = msgspec.convert(case["policy"], SubGroupPolicy, strict=False)
    values = match_values(policy, (case["pod"].get("metadata") or {}).get("labels", {}))
    return [values if values is None else sorted(values)]


def _sub_job(case: dict[str, Any]) -> SubJob:
    sub = SubJob("ns/job", "ns/job", min_available=case["minAvailable"], topology=None)
    for status, tasks in case["tasksByStatus"].items():
        for task in tasks.values():
            sub.tally(TaskStatus[status.upper()], 1, best_effort=bool(task.get("bestEffort")))
    return sub


PURE = {
    "HyperNodesInfo.UpdateHyperNode": _updated,
    "GetLCAHyperNode": lambda case: [_tree(case).common_ancestor(*case["args"])],
    "GetAncestors": lambda case: [sorted(_tree(case).ancestors(*case["args"]))],
    "GetLeafHyperNodes": lambda case: [sorted(leaves(_specs(case["hyperNodes"]), *case["args"]))],
    "hypernode GetMembers": _members,
    "getSubJobMatchValues": _values,
    "SubJobInfo.IsReady": lambda case: [not _sub_job(case).missing],
    "SubJobInfo.IsPipelined": lambda case: [_sub_job(case).is_pipelined],
}
