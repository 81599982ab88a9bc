"""The state that all parts of the core share: store, kinds, clock and source of uids."""

import datetime as dt
import hashlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from pumice.embedded.apiserver.catalogue import ApiResource, Catalogue
from pumice.embedded.apiserver.forms import KindSchema, form_of
from pumice.embedded.apiserver.replies import Object, not_found
from pumice.embedded.apiserver.store import ApiStore

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX: Final = 5

EVENTS: Final = "events."
PODS: Final = "pods."
NODES: Final = "nodes."
NAMESPACES: Final = "namespaces."
CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
BUDGETS: Final = "poddisruptionbudgets.policy"
PRIORITIES: Final = "priorityclasses.scheduling.k8s.io"


class ApiState:
    """Reads and writes of whole objects, for the server's own controllers and for all verbs."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        uids: Callable[[], str],
        store: ApiStore,
        catalogue: Catalogue,
    ) -> None:
        self.now = now
        self.uid = uids
        self.store = store
        self.catalogue = catalogue
        self._forms: dict[tuple[str, str, str], tuple[ApiResource, KindSchema]] = {}

    def timestamp(self, after_s: float = 0.0) -> str:
        """Return the time in that many seconds, as metadata writes it."""
        at = dt.datetime.fromtimestamp(int(self.now() + after_s), dt.UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def suffix(self) -> str:
        """Return the random part of a generated name."""
        digest = hashlib.sha256(self.uid().encode()).digest()
        return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:SUFFIX])

    def form(self, resource: ApiResource) -> KindSchema:
        """Return the form of a kind, compiled once per schema."""
        place = (resource.group, resource.version, resource.plural)
        cached = self._forms.get(place)
        if cached is None or cached[0] is not resource:
            cached = self._forms[place] = (resource, form_of(resource))
        return cached[1]

    def kind(self, resource_id: str) -> ApiResource:
        """Return a built-in kind."""
        found = self.catalogue.by_id(resource_id)
        assert found is not None, resource_id
        return found

    def find(self, resource_id: str, namespace: str, name: str) -> Object | None:
        """Return an object, None when there is none."""
        entry = self.store.get(resource_id, key_of(namespace, name))
        return None if entry is None else decode(entry.body)

    def load(self, resource: ApiResource, namespace: str, name: str) -> Object:
        """Return an object. Raises RequestFailure (404)."""
        found = self.find(resource.id, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def objects(self, resource_id: str, namespace: str = "") -> Iterator[Object]:
        """Yield the objects of a kind."""
        collection = self.store.collection(resource_id)
        for key in list(collection.keys(f"{namespace}/" if namespace else "")):
            yield decode(collection.entries[key].body)

    def write(self, resource_id: str, obj: Object) -> Object:
        """Write an object for the server's own controllers and kubelets."""
        self.store.put(resource_id, key(obj), obj)
        return obj

    def remove(self, resource_id: str, obj: Object) -> None:
        """Remove an object."""
        self.store.delete(resource_id, key(obj), obj)

    def add(self, resource_id: str, namespace: str, name: str, **members: object) -> None:
        """Create an object of this server's own unless there is one of that name."""
        if self.store.get(resource_id, key_of(namespace, name)) is not None:
            return
        resource = self.kind(resource_id)
        metadata = {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "uid": self.uid(),
            "creationTimestamp": self.timestamp(),
            **({"generation": 1} if resource.has_generation else {}),
        }
        own = members.pop("metadata", {})
        assert isinstance(own, dict)
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        self.write(resource_id, {**head, "metadata": metadata | own, **members})


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object; that of one without a namespace starts with `/`."""
    return f"{namespace}/{name}"


def key(obj: Object) -> str:
    """Return the key of an object."""
    metadata = obj["metadata"]
    return key_of(metadata.get("namespace", ""), metadata["name"])


def decode(body: bytes) -> Object:
    """Return the object in some bytes."""
    obj: Object = msgspec.json.decode(body)
    return obj
