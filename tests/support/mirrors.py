"""A mirror of visibility filled with facts, as the cache would say them, and Jobs to ask about."""

from services.scheduler.adapters.expressions import waiting_evaluator
from services.visibility.queries.cluster_mirror import ClusterMirror
from tests.support.world import Json, Objects


class World(Objects):
    """Objects and a mirror of them."""

    def __init__(self) -> None:
        self.mirror = ClusterMirror(evaluator=waiting_evaluator())
        super().__init__(self.mirror.fold)


def running(
    world: World,
    name: str,
    *,
    cpu: str,
    node: str,
    priority: str = "",
    preemptable: bool = False,
    owner: str = "",
    queue: str = "default",
) -> World:
    """Add a group with one pod that runs."""
    spec: Json = {"minResources": {"cpu": cpu}}
    if priority:
        spec["priorityClassName"] = priority
    world.group(name, phase="Running", owner=owner, queue=queue, **spec)
    annotations = {"volcano.sh/preemptable": "true"} if preemptable else {}
    return world.pod(f"{name}-0", name, cpu=cpu, node=node, annotations=annotations)


def job_of_tasks(
    name: str,
    *,
    queue: str = "",
    priority: str = "",
    scheduler: str = "",
    also: dict[str, str] | None = None,
    **tasks: tuple[int, str],
) -> Json:
    """Return a Job; tasks are name → (pods, CPU of each)."""
    spec: Json = {
        "tasks": [
            {
                "name": task,
                "replicas": pods,
                "template": {"spec": {"containers": [_container(cpu, also or {})]}},
            }
            for task, (pods, cpu) in tasks.items()
        ]
    }
    for field, value in (
        ("queue", queue),
        ("priorityClassName", priority),
        ("schedulerName", scheduler),
    ):
        if value:
            spec[field] = value
    return {"metadata": {"name": name}, "spec": spec}


def _container(cpu: str, also: dict[str, str]) -> Json:
    requests = {"cpu": cpu, **also}
    return {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": requests, "limits": also},
    }
