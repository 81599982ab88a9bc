"""`vcctl pod list`: the pods of jobs, with a state in one word as kubectl shows it."""

from collections.abc import Mapping
from typing import Any, Final

from pumice.vcctl import tables
from pumice.vcctl.ages import age
from pumice.vcctl.cluster import Cluster
from pumice.vcctl.flags import Value, text
from pumice.vcctl.podstate import ready, restarts, state
from shared.api.kinds import POD

_JOB: Final = "volcano.sh/job-name"
_QUEUE_LABEL: Final = "volcano.sh/queue-name"
_QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"


async def show(cluster: Cluster, values: Mapping[str, Value]) -> str:
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
