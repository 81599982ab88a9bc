"""Law: of the history of an object the last fact counts, whichever facts before it were skipped.

The stream keeps one fact per object, so that a reader which lags sees any subset of the facts that
ends with the last one: a PUT of a first object of some name, and then the DELETE of a second. The
law holds for each store that folds facts: the publish queue of the cache, the scheduler's cluster
state with what policy keeps beside it, the mirror of visibility, and the stores of the controller.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.cache.fold.objects import ObservedObject
from services.cache.fold.publish_queue import PublishQueue
from services.controller.adapters.informers import Informers
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.tasks.task import Task
from services.scheduler.scheduler_state import SchedulerState
from services.visibility.queries.cluster_mirror import ClusterMirror
from shared.api import kinds
from shared.contracts.messages import Fact, Op
from tests.property.hostile import objects
from tests.property.test_hostile_objects import HEALTHY, KINDS, SETTINGS, fact
from tests.sim.valid_objects import VALID_OBJECTS
from tests.support.laws import count_hits, needs_hits

NAMES = ["a", "n1"]
COUNTERS = frozenset({"version", "_version", "epoch", "changes", "serial"})
"""Attributes that say how often something changed, not what it is."""

History = list[Fact]


@st.composite
def histories(draw: Any, tokens: Sequence[str] = KINDS) -> tuple[History, History]:
    """Return facts about few names, and the same without some that are not the last of their names.

    Objects come, change, go, and come again with another uid.
    """
    rng = draw(st.randoms(use_true_random=False))
    few = draw(st.lists(st.sampled_from(tokens), min_size=1, max_size=2))
    contents = {token: [draw(objects(token)) for _ in range(2)] for token in few}
    found: History = []
    there: dict[tuple[str, str], str] = {}
    for number in range(1, rng.randint(4, 12)):
        token, name = rng.choice(few), rng.choice(NAMES)
        key = f"ns/{name}" if kinds.KINDS[token].namespaced else name
        uid = there.get((token, key), "")
        if uid and rng.random() < 0.4:
            del there[token, key]
            found.append(Fact(kind=token, key=key, uid=uid, rv=str(number), op=Op.DELETE))
            continue
        if not uid or rng.random() < 0.2:
            uid = there[token, key] = f"{token}-{name}-{number}"
        meta = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(number)}
        document = rng.choice(contents[token])
        drawn = dict(document["metadata"])
        if token == "pods" and rng.random() < 0.5:
            drawn["annotations"] = {"scheduling.k8s.io/group-name": "a"}
        body = json.dumps({**document, "metadata": {**drawn, **meta}}).encode()
        found.append(Fact(kind=token, key=key, uid=uid, rv=str(number), body=msgspec.Raw(body)))
    last = {(each.kind, each.key): each for each in found}
    return found, [e for e in found if last[e.kind, e.key] is e or rng.random() < 0.4]


def content(found: Any, seen: frozenset[int] = frozenset()) -> Any:
    """Return what an object holds, as values that can be compared."""
    if isinstance(found, str | bytes | int | float | bool | type(None) | np.generic):
        return found
    if id(found) in seen or isinstance(found, Callable):  # type: ignore[arg-type]
        return "..."
    seen |= {id(found)}
    if isinstance(found, Task):  # its class is numbered by when it was first met, as resources are
        return [found.uid, found.key, found.node, int(found.status)]
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, dict):
        items = ((repr(content(key, seen)), content(value, seen)) for key, value in found.items())
        return dict(sorted(items, key=lambda item: item[0]))
    if isinstance(found, set | frozenset):
        return sorted(repr(content(each, seen)) for each in found)
    if isinstance(found, list | tuple) and not hasattr(found, "_fields"):
        return [content(each, seen) for each in found]
    names = [*getattr(found, "__dict__", ()), *getattr(found, "_fields", ())]
    for kind in type(found).__mro__:
        names += [*getattr(kind, "__slots__", ())]
    held = {name: getattr(found, name, None) for name in names if name not in COUNTERS}
    return {name: content(value, seen) for name, value in sorted(held.items())}


def flat(found: Any, at: str = "") -> dict[str, Any]:
    """Return each value by its path, so that a difference is named."""
    if isinstance(found, dict) and found:
        items: Any = found.items()
    elif isinstance(found, list | tuple) and found:
        items = enumerate(found)
    else:
        return {at: found}
    return {path: v for key, value in items for path, v in flat(value, f"{at}/{key}").items()}


def scheduling(facts: History) -> Any:
    scheduler = SchedulerState(DecisionSettings(mindcluster=True), **SETTINGS)
    scheduler.fold(
        [fact(token, document, f"good-{n}") for n, (token, document) in enumerate(HEALTHY)]
    )
    scheduler.fold(facts)
    return of_cluster(scheduler.cluster_state)


def of_cluster(held: Any) -> Any:
    held.jobs.refresh()
    names = held.dimensions.names

    def amounts(array: Any) -> dict[str, int]:
        return {name: int(a) for name, a in zip(names, array, strict=False) if a}

    columns = {name: held.nodes.column(name) for name in ("good", *NAMES)}
    ledger = held.nodes.ledger
    jobs = {
        job.key: {
            name: content(getattr(job, name))
            for name in ("uid", "has_group", "queue", "owner_job", "controller", "decided")
        }
        | ({name: content(getattr(job, name)) for name in OF_GROUP} if job.has_group else {})
        | {
            "tasks": sorted(job.tasks),
            "held": amounts(job.allocated),
            "want": amounts(job.requested),
        }
        for job in held.jobs.all()
    }
    return {
        "nodes": {
            name: [amounts(ledger.used[:, at]), amounts(ledger.allocatable[:, at])]
            for name, at in columns.items()
            if at >= 0
        },
        "jobs": jobs,
        "tasks": {task.key: (task.uid, task.node, int(task.status)) for task in held.tasks()},
        "queues": {name: of_queue(queue, names) for name, queue in held.jobs.queues.items()},
        "peers": held.nodes.pod_affinity.sums(),
        "hypernodes": content(held.hypernodes),
        "policy": {type(state).__name__: content(state) for state in held.states},
    }


def of_queue(queue: Any, names: Sequence[str]) -> Any:
    """Return what is held of a queue; resources count from the first object that names them."""
    found = content(queue)
    for name, value in found.items():
        array = getattr(queue, name)
        if isinstance(array, np.ndarray):
            counted = array.tolist()
            found[name] = {names[at]: n for at, n in enumerate(counted) if n}
        elif name == "deserved_dims":
            found[name] = sorted(names[at] for at in value)
    return found


OF_GROUP = (
    "phase", "priority_class", "priority", "created", "min_available", "min_task_member",
    "min_listed", "annotations", "preemptable", "non_preemptable", "conditions",
    "reservation_expired",
)  # fmt: skip


def mirrored(facts: History) -> Any:
    mirror = ClusterMirror()
    mirror.fold(facts)
    return of_cluster(mirror.state), content(mirror.kept)


def controlled(facts: History) -> Any:
    informers = Informers(scheduler_names=["volcano"], loads=True)
    informers.fold([each for each in facts if each.kind in informers.by_kind])
    stores = {token: dict(store) for token, store in informers.by_kind.items()}
    records = {
        key: (record.uid, sorted(record.pods), record.group and record.group.metadata.uid)
        for key, record in informers.jobs.items()
    }
    return content(stores), records, informers.oversized


CONTROLLED = sorted(Informers(scheduler_names=["volcano"]).by_kind)


@pytest.mark.parametrize(
    ("fold", "tokens"),
    [(scheduling, KINDS), (mirrored, KINDS), (controlled, CONTROLLED)],
    ids=["scheduler", "visibility", "controller"],
)
@needs_hits(at_least=4)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_facts_that_are_skipped_leave_the_same_state(
    fold: Callable[[History], Any], tokens: list[str], data: st.DataObject
) -> None:
    history, shown = data.draw(histories(tokens))
    count_hits([each for each in history if each not in shown and each.op is Op.DELETE])
    assert flat(fold(shown)) == flat(fold(history))


@pytest.mark.parametrize("token", sorted({*KINDS} & {*VALID_OBJECTS}))
def test_an_object_that_loses_all_that_it_said_reads_as_one_that_never_said_it(token: str) -> None:
    key = "ns/a" if kinds.KINDS[token].namespaced else "a"

    def put(number: int, **content: Any) -> Fact:
        meta = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": str(number)}
        body = json.dumps({**content, "metadata": meta}).encode()
        return Fact(kind=token, key=key, uid="u", rv=str(number), body=msgspec.Raw(body))

    said, silent = put(1, **VALID_OBJECTS[token].content), put(2)
    assert flat(scheduling([said, silent])) == flat(scheduling([silent]))


@needs_hits(at_least=5)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_changes_that_a_watch_skips_leave_the_same_facts_to_publish(data: st.DataObject) -> None:
    history, shown = data.draw(histories(["podgroups"]))
    count_hits(history[len(shown) :])

    def published(facts: History) -> dict[str, tuple[str, Op]]:
        queue = PublishQueue(["podgroups"])
        queue.begin(())
        queue.listed("podgroups", {}, (), "0")
        for each in facts:
            if each.op is Op.DELETE:
                queue.deleted(each.kind, each.key, each.uid, each.rv)
            else:
                body = bytes(each.body)
                held = ObservedObject(uid=each.uid, rv=each.rv, body=body, digest=body)
                queue.put(each.kind, each.key, held)
        found = {}
        while (fact := queue.next()) is not None:
            queue.confirmed(fact)
            found[fact.key] = (fact.uid, fact.op)
        return found

    assert published(shown) == published(history)
