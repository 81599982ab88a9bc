"""Facts of PodGroups: Volcano's, Kubernetes' own, and the queues of namespaces for the latter.

Pods of both kinds name a group by namespace and name. Where both kinds have a group of a name,
Volcano's counts: which one came first does not matter.
"""

from pumice.plugins import Fold
from services.scheduler.engine.jobs.jobs import Jobs
from shared.api import keys, kinds
from shared.api.core import Namespace
from shared.api.native_groups import NativePodGroup
from shared.api.scheduling import DEFAULT_QUEUE, PodGroup
from shared.contracts.subjects import split_key
from shared.jobs.native_groups import as_podgroup, terms_of


class PodGroups:
    """Keeps the jobs' PodGroups; a native one becomes that of Volcano which it amounts to."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._native: dict[str, NativePodGroup] = {}
        self._queues: dict[str, str] = {}
        """Namespace → queue of its native PodGroups, where its annotations name one."""

    def folds(self, of_namespaces: Fold) -> dict[str, list[Fold]]:
        """Return how to fold each kind that it reads, and what else reads namespaces."""
        own = Fold(self.put_namespace, self.remove_namespace)
        return {
            kinds.PODGROUP.token: [Fold(self.put, self.remove)],
            kinds.NATIVEPODGROUP.token: [Fold(self.put_native, self.remove_native)],
            kinds.NAMESPACE.token: [of_namespaces, own],
        }

    def uids(self) -> dict[str, dict[str, str]]:
        """Return the uids of the PodGroups of each kind by key."""
        held = (job for job in self._jobs.all() if job.has_group and job.native is None)
        return {
            kinds.PODGROUP.token: {job.key: job.uid for job in held},
            kinds.NATIVEPODGROUP.token: {k: g.metadata.uid for k, g in self._native.items()},
        }

    def put(self, key: str, group: PodGroup) -> None:
        """Store a PodGroup of Volcano. Raises `BadQuantity` and `TooManyTerms`."""
        self._jobs.put_group(key, group)

    def remove(self, key: str) -> None:
        """Forget a PodGroup of Volcano."""
        self._jobs.remove_group(key)
        self._show(key)

    def put_native(self, key: str, group: NativePodGroup) -> None:
        """Store a native PodGroup."""
        self._native[key] = group
        self._show(key)

    def remove_native(self, key: str) -> None:
        """Forget a native PodGroup."""
        self._native.pop(key, None)
        job = self._jobs.get(key)
        if job is not None and job.native is not None:
            self._jobs.remove_group(key)

    def put_namespace(self, name: str, namespace: Namespace) -> None:
        """Store the queue of a namespace."""
        self._set_queue(name, namespace.metadata.annotations.get(keys.SCHEDULING_QUEUE_NAME, ""))

    def remove_namespace(self, name: str) -> None:
        """Forget the queue of a namespace."""
        self._set_queue(name, "")

    def _set_queue(self, namespace: str, queue: str) -> None:
        if queue == self._queues.get(namespace, ""):
            return
        self._queues[namespace] = queue
        if not queue:
            del self._queues[namespace]
        for key in self._native:
            if split_key(key)[0] == namespace:
                self._show(key)

    def _show(self, key: str) -> None:
        """Have a job follow its native PodGroup, unless there is one of Volcano."""
        native, job = self._native.get(key), self._jobs.get(key)
        if native is None or (job is not None and job.has_group and job.native is None):
            return
        queue = self._queues.get(split_key(key)[0], DEFAULT_QUEUE)
        self._jobs.put_group(key, as_podgroup(native, queue=queue), terms_of(native))
