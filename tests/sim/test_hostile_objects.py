"""No object ends or blocks a service, whatever it is; and what fails about one stays with it."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from services.binder.adapters import statuses
from services.binder.adapters.execute import IntentExecutor
from services.cache.adapters import watcher
from services.controller.adapters.informers import Informers
from services.controller.adapters.store import ObjectChange, Touched
from services.controller.cronjob import reconciler as cronjobs
from services.controller.job import reconciler as jobs
from services.controller.jobflow import reconciler as jobflows
from services.controller.queue import reconciler as queues
from tests.sim import hostile, simulation
from tests.sim.hostile import healthy_gang, nothing_is_left, what_is_quarantined
from tests.sim.simulation import Simulation, simulate
from tests.support import world


@pytest.mark.parametrize("seed", [2, 9])
def test_hostile_objects_end_no_service_and_delay_no_healthy_job(seed: int) -> None:
    """Each seed creates some eighty objects of all kinds and changes them twenty times."""
    report = simulate(seed, workload="hostile", nemesis_names=())
    said = f"{report.story}\n{report.violations}\npython -m tests.sim --workload hostile"
    assert report.ok, f"{said} --seed {seed}"


class PlantedError(Exception):
    """An error of ours that no code foresees, about an object that is called planted."""


def broken(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fails as soon as one of its arguments is about a planted object."""

    def check(*values: Any) -> None:
        if any("planted" in str(_name(value)) for value in values):
            raise PlantedError("planted")

    @functools.wraps(real)
    def wrapped(*args: Any, **more: Any) -> Any:
        check(*args, *more.values())
        return real(*args, **more)

    @functools.wraps(real)
    async def awaited(*args: Any, **more: Any) -> Any:
        check(*args, *more.values())
        return await real(*args, **more)

    return awaited if asyncio.iscoroutinefunction(real) else wrapped


def _name(value: Any) -> object:
    for way in ("metadata.name", "job.metadata.name", "pod", "key"):
        found: Any = value
        for step in way.split("."):
            found = getattr(found, step, None)
        if isinstance(found, str):
            return found
    return ""


PLACES: dict[str, tuple[Any, str]] = {
    "cache: priorityclasses planted read": (watcher, "observed_object"),
    "controller: podgroups hostile/planted fold": (Informers, "_group_changed"),
    "controller: jobs hostile/planted reconcile": (jobs, "advance"),
    "controller: cronjobs hostile/planted reconcile": (cronjobs, "sync"),
    "controller: jobflows hostile/planted reconcile": (jobflows, "plan"),
    "controller: queues planted reconcile": (queues, "synced_state"),
    "binder: podgroups hostile/planted status": (statuses, "as_decided"),
    "binder: pods hostile/planted execute": (IntentExecutor, "_bind"),
}
"""What is quarantined, and whose fault it is."""


def only_priority_classes(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return the cache's encoder as it fails for one kind: others are to reach their readers."""

    def wrapped(view: Any) -> Any:
        if type(view).__name__ == "PriorityClass" and view.metadata.name == "planted":
            raise PlantedError("planted")
        return real(view)

    return wrapped


def only_while_there(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return the controller's handler of a change as it fails until the object is deleted."""

    def wrapped(informers: Informers, change: ObjectChange[Any], touched: Touched) -> None:
        if change.after is not None and change.after.metadata.name == "planted":
            raise PlantedError("planted")
        real(informers, change, touched)

    return wrapped


BREAKS = {"observed_object": only_priority_classes, "_group_changed": only_while_there}


async def planted(sim: Simulation) -> None:
    """Create one object per fault, and a healthy gang beside them."""
    hostile.create_queue_and_nodes(sim)
    batch, meta = "batch.volcano.sh/v1alpha1", {"name": "planted"}
    job = world.job("planted", world.task("w", 1))
    group = {"scheduling.k8s.io/group-name": "planted"}
    pod = {
        "metadata": {**meta, "annotations": group},
        "spec": {**job["spec"]["tasks"][0]["template"]["spec"], "schedulerName": "volcano"},
    }
    cron = {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}}
    for plural, body, namespace in (
        ("priorityclasses", {"metadata": meta, "value": 7}, ""),
        ("queues", {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
                    "metadata": meta, "spec": {"weight": 1, "parent": "root"}}, ""),
        ("podgroups", {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
                       "metadata": meta, "spec": {"minMember": 1, "queue": "default"}}, "hostile"),
        ("pods", pod, "hostile"),
        ("jobs", job, "hostile"),
        ("cronjobs", {"apiVersion": batch, "kind": "CronJob", "metadata": meta, "spec": cron},
         "hostile"),
        ("jobflows", {"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow",
                      "metadata": meta, "spec": {"flows": [{"name": "a"}]}}, "hostile"),
    ):  # fmt: skip
        sim.cluster.create(plural, body, namespace)
    await healthy_gang(sim, "beside")
    shown = set[str]()
    for _ in range(50):  # an object is shown with its last failure, and some have two
        lines = what_is_quarantined(sim)
        shown |= {line.replace("-a:", ":").replace("-b:", ":") for line in lines}
        await asyncio.sleep(0.1)
    sim.tell("shown", lines=sorted(shown))
    for place in PLACES:
        if not any(line.startswith(place) and "PlantedError: planted" in line for line in shown):
            sim.judge.broken(place, f"{place} is not shown: {sorted(shown)}")
    events = {
        event["involvedObject"]["kind"]
        for namespace in ("hostile", "default")
        for event in sim.cluster.items("events", namespace)
        if event["reason"] == "Quarantined" and event["involvedObject"]["name"] == "planted"
    }
    if missing := {"Job", "CronJob", "JobFlow", "Queue", "PodGroup", "Pod"} - events:
        sim.judge.broken("hostile/planted", f"no Event on {missing}, only on {events}")
    for plural, namespace in (
        ("jobs", "hostile"), ("cronjobs", "hostile"), ("jobflows", "hostile"), ("pods", "hostile"),
        ("podgroups", "hostile"), ("queues", ""), ("priorityclasses", ""),
    ):  # fmt: skip
        sim.cluster.delete(plural, namespace, "planted")
    await nothing_is_left(sim)


def test_what_fails_about_one_object_is_shown_and_everything_else_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for owner, name in PLACES.values():
        monkeypatch.setattr(owner, name, BREAKS.get(name, broken)(getattr(owner, name)))
    monkeypatch.setitem(simulation.WORKLOADS, "planted", planted)
    report = simulate(1, workload="planted", nemesis_names=())
    assert report.ok, f"{report.story}\n{report.violations}"
