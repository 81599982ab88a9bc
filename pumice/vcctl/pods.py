"""`vcctl pod list`: the pods of jobs, with a state in one word as kubectl shows it.

The word is the most telling of what the pod and its containers say: a container that waits or has
ended says more than the phase, and one that is being initialised more than those after it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pumice.vcctl import tables
from pumice.vcctl.cluster import ClusterClient
from pumice.vcctl.flags import Value, text
from pumice.vcctl.tables import age, parsed, span
from shared.api.kinds import POD

_JOB: Final = "volcano.sh/job-name"
_QUEUE_LABEL: Final = "volcano.sh/queue-name"
_QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"


async def show(cluster: ClusterClient, values: Mapping[str, Value]) -> str:
    """List the pods of all jobs, of one, or of a queue."""
    everywhere = bool(values["all-namespaces"])
    job, queue = text(values, "job"), text(values, "queue")
    selector = f"{_JOB} in ({job})" if job else _JOB
    namespace = "" if everywhere else text(values, "namespace")
    pods = await cluster.items(POD, namespace, [("labelSelector", selector)])
    shown = [pod for pod in pods if not queue or queue in _queues(pod)]
    shown.sort(key=lambda pod: (tables.meta(pod, "namespace"), tables.meta(pod, "name")))
    return tables.pods([_row(pod, cluster.now_s) for pod in shown], everywhere=everywhere)


def _queues(pod: Mapping[str, Any]) -> set[str]:
    metadata = pod["metadata"]
    label = (metadata.get("labels") or {}).get(_QUEUE_LABEL, "")
    return {label, (metadata.get("annotations") or {}).get(_QUEUE_ANNOTATION, "")}


def _row(pod: Mapping[str, Any], now_s: float) -> list[str]:
    return [
        tables.meta(pod, "namespace"),
        tables.meta(pod, "name"),
        ready(pod),
        state(pod),
        restarts(pod, now_s),
        age(tables.meta(pod, "creationTimestamp"), now_s),
    ]


Object = Mapping[str, Any]

_GATED: Final = "SchedulingGated"
_STARTING: Final = "PodInitializing"


def ready(pod: Object) -> str:
    """Return how many containers are ready, of how many."""
    spec = pod.get("spec") or {}
    lasting = [c for c in spec.get("initContainers") or () if _lasts(c)]
    total = len(spec.get("containers") or ()) + len(lasting)
    names = {c.get("name") for c in lasting}
    statuses = [*_initial(pod, names), *_containers(pod)]
    running = (s for s in statuses if s.get("ready") and "running" in (s.get("state") or {}))
    return f"{sum(1 for _ in running)}/{total}"


def restarts(pod: Object, now_s: float) -> str:
    """Return how often containers were started again, and how long ago the last of them ended."""
    spec = pod.get("spec") or {}
    names = {c.get("name") for c in spec.get("initContainers") or () if _lasts(c)}
    initialised = _initialising(pod) is None
    counted = [*_initial(pod, names), *_containers(pod)] if initialised else _initial(pod)
    count = sum(int(status.get("restartCount") or 0) for status in counted)
    ends = [_ended(status) for status in counted]
    last = max((end for end in ends if end), default="")
    then = parsed(last)
    return f"{count} ({span(now_s - then.timestamp())} ago)" if count and then else str(count)


def state(pod: Object) -> str:
    """Return the pod's state as kubectl's column STATUS shows it."""
    status = pod.get("status") or {}
    reason = str(status.get("reason") or _gate(status) or status.get("phase") or "")
    begun = _initialising(pod)
    reason = _of_containers(pod, reason) if begun is None else begun
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _gate(status: Object) -> str:
    """Return the state of a pod with scheduling gates."""
    own = (c for c in status.get("conditions") or () if c.get("type") == "PodScheduled")
    return next((_GATED for c in own if c.get("reason") == _GATED), "")


def _initialising(pod: Object) -> str | None:
    """Return the state of a pod whose init containers are not done, None when they are."""
    init = {c.get("name"): c for c in (pod.get("spec") or {}).get("initContainers") or ()}
    for at, status in enumerate(_initial(pod)):
        container_state = status.get("state") or {}
        ended = container_state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if _lasts(init.get(status.get("name")) or {}) and status.get("started"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or _code(ended)}"
        waits = (container_state.get("waiting") or {}).get("reason")
        if waits and waits != _STARTING:
            return f"Init:{waits}"
        return f"Init:{at}/{len(init)}"
    return None


def _of_containers(pod: Object, reason: str) -> str:
    """Return the reason of the first container that waits or has ended, else the given state."""
    running = False
    for status in reversed(_containers(pod)):
        container_state = status.get("state") or {}
        ended = container_state.get("terminated")
        if waits := (container_state.get("waiting") or {}).get("reason"):
            reason = waits
        elif ended is not None:
            reason = ended.get("reason") or _code(ended)
        elif status.get("ready") and "running" in container_state:
            running = True
    if reason == "Completed" and running:
        return "Running" if _is_ready(pod) else "NotReady"
    return reason


def _code(ended: Object) -> str:
    signal = ended.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode') or 0}"


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _lasts(container: Object) -> bool:
    """Return whether an init container stays beside the others (a sidecar)."""
    return container.get("restartPolicy") == "Always"


def _containers(pod: Object) -> Sequence[Object]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _initial(pod: Object, names: "set[Any] | None" = None) -> list[Object]:
    """Return the statuses of init containers, of those with the names if any are given."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or []
    return [s for s in statuses if names is None or s.get("name") in names]


def _ended(status: Object) -> str:
    return str(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or "")
