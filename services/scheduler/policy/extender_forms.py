"""Tasks, nodes, jobs and queues as JSON for an extender (PL24), under Go's field names.

The scheduler stores only the fields that rules read, so pods, nodes and PodGroups are sent with
these fields only. Amounts have Volcano's units: milli-CPU, bytes, thousandths of anything else.
"""

from typing import Any, Final

from pumice.plugins import Cluster, IntArray, Job, Queue, Task
from services.scheduler.engine.resources.dimensions import (
    CPU_DIM,
    MEMORY_DIM,
    PODS_DIM,
    is_in_bytes,
)
from shared.model.status import TaskStatus

Form = dict[str, Any]

_STATUS: Final = {
    status: 1 << bit
    for bit, status in enumerate(
        (
            TaskStatus.PENDING,
            TaskStatus.ALLOCATED,
            TaskStatus.PIPELINED,
            TaskStatus.BINDING,
            TaskStatus.BOUND,
            TaskStatus.RUNNING,
            TaskStatus.RELEASING,
            TaskStatus.SUCCEEDED,
            TaskStatus.FAILED,
            TaskStatus.UNKNOWN,
        )
    )
}


class Forms:
    """Converts the records of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def amounts(self, vector: IntArray) -> Form:
        """Return an amounts array."""
        names = self._cluster.resources
        scalars = {
            name: float(vector[at]) * (1000 if is_in_bytes(name) else 1)
            for at, name in enumerate(names)
            if at not in (CPU_DIM, MEMORY_DIM) and vector[at]
        }
        return {
            "MilliCPU": float(vector[CPU_DIM]),
            "Memory": float(vector[MEMORY_DIM]),
            "ScalarResources": scalars,
            "MaxTaskNum": int(vector[PODS_DIM]),
        }

    def task(self, task: Task) -> Form:
        """Return a task."""
        request = self.amounts(task.task_class.request)
        meta = {
            "name": task.name,
            "namespace": task.namespace,
            "uid": task.uid,
            "labels": dict(task.labels),
        }
        spec = {
            "priority": task.pod_priority,
            "priorityClassName": task.priority_class,
            "nodeName": task.fact_node,
            "nodeSelector": dict(task.task_class.node_selector),
        }
        return {
            "UID": task.uid,
            "Job": task.job_key,
            "Name": task.name,
            "Namespace": task.namespace,
            "TaskRole": task.role,
            "Resreq": request,
            "InitResreq": request,
            "NodeName": task.node,
            "Status": _STATUS[task.status],
            "Priority": task.priority,
            "Preemptable": task.preemptable,
            "BestEffort": task.task_class.best_effort,
            "SchGated": task.gated,
            "Pod": {"metadata": meta, "spec": spec},
        }

    def node(self, column: int, more: IntArray | None = None) -> Form:
        """Return a node with `more` added to its usage."""
        cluster, nodes = self._cluster, self._cluster.nodes
        name = cluster.node_names[column]
        used = nodes.used[:, column] + (0 if more is None else more)
        allocatable = nodes.allocatable[:, column]
        return {
            "Name": name,
            "Node": {"metadata": {"name": name, "labels": dict(nodes.labels(name))}},
            "Releasing": self.amounts(nodes.releasing[:, column]),
            "Pipelined": self.amounts(nodes.pipelined[:, column]),
            "Idle": self.amounts(allocatable - used),
            "Used": self.amounts(used),
            "Allocatable": self.amounts(allocatable),
            "Tasks": {task.uid: self.task(task) for task in cluster.tasks_on(name)},
        }

    def job(self, job: Job) -> Form:
        """Return a job with its tasks."""
        meta = {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
            "annotations": dict(job.annotations),
            "creationTimestamp": job.created,
        }
        spec = {
            "minMember": job.min_available,
            "queue": job.queue,
            "priorityClassName": job.priority_class,
        }
        return {
            "UID": job.key,
            "PgUID": job.uid,
            "Name": job.name,
            "Namespace": job.namespace,
            "Queue": job.queue,
            "Priority": job.priority,
            "MinAvailable": job.min_available,
            "Allocated": self.amounts(job.allocated),
            "TotalRequest": self.amounts(job.requested),
            "Preemptable": job.preemptable,
            "Tasks": {task.uid: self.task(task) for task in job.tasks.values()},
            "PodGroup": {"metadata": meta, "spec": spec, "status": {"phase": job.phase}},
        }

    @staticmethod
    def queue(queue: Queue) -> Form:
        """Return a queue."""
        meta = {
            "name": queue.name,
            "uid": queue.uid,
            "annotations": dict(queue.annotations),
            "creationTimestamp": queue.created,
        }
        spec = {
            "weight": queue.weight,
            "priority": queue.priority,
            "parent": queue.parent,
            "reclaimable": queue.reclaimable,
        }
        return {
            "UID": queue.name,
            "Name": queue.name,
            "Weight": queue.weight,
            "Queue": {"metadata": meta, "spec": spec, "status": {"state": queue.state}},
        }

    def world(self) -> Form:
        """Return everything: the request to an extender when a session opens."""
        cluster = self._cluster
        columns = [at for at, name in enumerate(cluster.node_names) if name]
        nodes = {cluster.node_names[at]: self.node(at) for at in columns}
        return {
            "Jobs": {job.key: self.job(job) for job in cluster.jobs},
            "Nodes": nodes,
            "Queues": {name: self.queue(queue) for name, queue in cluster.queues.items()},
            "NamespaceInfo": {},
            "RevocableNodes": {},
            "NodeList": list(nodes),
        }
