"""`ApiServer`: requests in, responses and watches out. No socket, no thread, no clock of its own.

A request is a generator of `steps`: it yields each call of an admission webhook and is sent the
answer, so that the HTTP shell makes the calls (`http`). Time passes only by `tick`, which ends
watches, sends bookmarks, collects garbage and plays the fake kubelets; `due_at` returns when `tick`
has work to do next.
"""

from collections.abc import Callable, Generator
from typing import Final

from pumice.embedded.apiserver import deleting, discovery, pods, reading, target, writing
from pumice.embedded.apiserver.admission import AdmissionResponse, Call
from pumice.embedded.apiserver.aggregation import Aggregation, ProxiedRequest
from pumice.embedded.apiserver.api_state import CRDS, NAMESPACES, PRIORITIES, ApiState, decode
from pumice.embedded.apiserver.catalogue import Catalogue, builtin
from pumice.embedded.apiserver.journal import StoreJournal
from pumice.embedded.apiserver.kubelets import Kubelets
from pumice.embedded.apiserver.owners import GarbageCollector
from pumice.embedded.apiserver.replies import (
    ApiReply,
    ApiRequest,
    Object,
    RequestFailure,
    wrong_method,
)
from pumice.embedded.apiserver.store import DELETED, ApiStore, ObjectVersion, StoreWrite
from pumice.embedded.apiserver.target import RequestTarget
from pumice.embedded.apiserver.watching import Watch

KEEP: Final = 20_000
"""Changes per kind that a watch may start behind."""
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITIES: Final = (
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
)
_ACCEPTED: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)
Outcome = ApiReply | Watch | ProxiedRequest
Steps = Generator[Call, AdmissionResponse, Outcome]


class ApiServer:
    """The objects of one API server and the verbs on them."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        uids: Callable[[], str],
        keep: int = KEEP,
    ) -> None:
        """Take the wall clock (unix seconds) and a source of uids."""
        store = ApiStore(now=now, keep=keep)
        self.api = ApiState(now=now, uids=uids, store=store, catalogue=Catalogue(builtin()))
        self.aggregation = Aggregation(self.api)
        self._watches: dict[str, list[Watch]] = {}
        self._definitions = _Definitions(self.api)
        self._owners = GarbageCollector(self.api)
        self._kubelets = Kubelets(self.api)
        store.listeners.append(self._notify_watches)
        for name in _NAMESPACES:
            self._add_namespace(name)
        for name, value in _PRIORITIES:
            self._add_priority(name, value)
        self.tick()

    def steps(self, request: ApiRequest) -> Steps:
        """Carry out a request; yields each webhook call and is sent its reply."""
        try:
            return (yield from self._route(request))
        except RequestFailure as failure:
            return failure.response()

    def tick(self) -> None:
        """Run the timers that are due; cheap when none is."""
        self._kubelets.work()
        while not (self._owners.is_idle and self._definitions.is_idle):
            self._definitions.work()
            self._owners.work()
        self._end_and_bookmark_watches()

    def due_at(self) -> float | None:
        """Return when `tick` has something to do (unix seconds), None while nothing is foreseen."""
        if not (self._owners.is_idle and self._definitions.is_idle):
            return self.api.now()
        times = [at for at in (self._kubelets.due_at(),) if at is not None]
        for watches in self._watches.values():
            for watch in watches:
                times += [watch.bookmark_at] if watch.bookmarks else []
                times += [watch.ends_at] if watch.ends_at is not None else []
        return min(times, default=None)

    def end_watches(self) -> None:
        """End all watches."""
        for watches in self._watches.values():
            for watch in list(watches):
                watch.close()
        self._watches.clear()

    def restore(self, resource_id: str, key: str, entry: ObjectVersion) -> None:
        """Put back an object from a journal, before the first request."""
        obj = decode(entry.body)
        self.api.store.restore(resource_id, key, entry)
        if resource_id == CRDS:
            self._definitions.serve(obj)
        self._owners.index(resource_id, obj)
        self._kubelets.index(resource_id, obj)

    def load_journal(self, journal: StoreJournal) -> None:
        """Restore the objects of a journal, and write all changes to it; before the first request.

        Watches and paged lists from before get 410 and begin again: past changes are not kept.
        """
        version = journal.version()
        for resource, key, entry in journal.load():
            self.restore(resource, key, entry)
        store = self.api.store
        store.version = max(store.version, version)
        store.compact()
        self.tick()
        journal.follow(store)

    def _route(self, request: ApiRequest) -> Steps:
        proxied = self.aggregation.route(request)
        if proxied is not None:
            return proxied
        discovered = discovery.respond(self.api.catalogue, request, self.aggregation)
        if discovered is not None:
            return discovered
        found = target.read(self.api.catalogue, request)
        match request.method:
            case "GET" | "HEAD":
                return self._read(found)
            case "POST":
                return (yield from self._post(found))
            case "PUT" if found.name:
                return (yield from writing.update(self.api, found))
            case "PATCH" if found.name:
                return (yield from writing.patch(self.api, found))
            case "DELETE" if not found.subresource:
                act = deleting.delete if found.name else deleting.delete_collection
                return (yield from act(self.api, found))
        raise wrong_method()

    def _read(self, found: RequestTarget) -> ApiReply | Watch:
        if found.flag("watch"):
            watch = reading.watch(self.api, found)
            self._watches.setdefault(found.resource.id, []).append(watch)
            return watch
        if found.name:
            return reading.get(self.api, found)
        return reading.listing(self.api, found)

    def _post(self, found: RequestTarget) -> writing.Answering:
        if found.subresource == "binding":
            return pods.bind(self.api, found)
        if found.subresource == "eviction":
            return (yield from pods.evict(self.api, found))
        if found.name:
            raise wrong_method()
        return (yield from writing.create(self.api, found))

    def _notify_watches(self, change: StoreWrite, obj: Object) -> None:
        del obj
        watches = self._watches.get(change.resource)
        if not watches:
            return
        lines: dict[str, bytes] = {}
        for watch in watches:
            watch.feed(change, lines)

    def _end_and_bookmark_watches(self) -> None:
        now = self.api.now()
        for resource, watches in list(self._watches.items()):
            for watch in watches:
                if watch.ends_at is not None and now >= watch.ends_at:
                    watch.close()
                elif watch.bookmarks and now >= watch.bookmark_at:
                    watch.bookmark_at = watch.next_bookmark(now)
                    watch.bookmark(self.api.store.version)
            left = [watch for watch in watches if not watch.ended]
            if len(left) < len(watches):
                self._watches[resource] = left

    def _add_namespace(self, name: str) -> None:
        labels = {"labels": {"kubernetes.io/metadata.name": name}}
        self.api.add(
            NAMESPACES,
            "",
            name,
            metadata=labels,
            spec={"finalizers": ["kubernetes"]},
            status={"phase": "Active"},
        )

    def _add_priority(self, name: str, value: int) -> None:
        self.api.add(PRIORITIES, "", name, value=value, preemptionPolicy="PreemptLowerPriority")


class _Definitions:
    """Serves the kinds of all CRDs."""

    def __init__(self, api: ApiState) -> None:
        self._api = api
        self._due: list[str] = []
        api.store.listeners.append(self._note)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to work off."""
        return not self._due

    def serve(self, crd: Object) -> None:
        """Serve the kinds of a CRD."""
        self._api.catalogue.replace(crd, served=True)

    def _note(self, change: StoreWrite, obj: Object) -> None:
        if change.resource != CRDS:
            return
        if change.op == DELETED:
            self._end(obj)
        else:
            self.serve(obj)
            if "status" not in obj or not obj["status"].get("conditions"):
                self._due.append(obj["metadata"]["name"])

    def work(self) -> None:
        """Say on new CRDs that they are served."""
        due, self._due = self._due, []
        for name in due:
            crd = self._api.find(CRDS, "", name)
            if crd is not None:
                self._api.write(CRDS, {**crd, "status": self._status(crd)})

    def _status(self, crd: Object) -> Object:
        spec, stamp = crd["spec"], self._api.timestamp()
        return {
            "acceptedNames": spec["names"],
            "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": stamp,
                }
                for kind, reason, message in _ACCEPTED
            ],
        }

    def _end(self, crd: Object) -> None:
        spec = crd["spec"]
        resource_id = f"{spec['names']['plural']}.{spec['group']}"
        collection = self._api.store.collection(resource_id)
        for key in list(collection.keys("")):
            self._api.remove(resource_id, decode(collection.entries[key].body))
        self._api.catalogue.replace(crd, served=False)
