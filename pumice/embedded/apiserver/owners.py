"""The parts of kube-controller-manager that clients rely on.

Garbage collection by owner references (background, foreground, orphan), the end of namespaces with
all that is in them, the account that each namespace starts with, and the arithmetic of disruption
budgets. Changes are queued as they happen; `work` handles them in their order.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pumice.embedded.apiserver import selecting
from pumice.embedded.apiserver.api_state import BUDGETS, NAMESPACES, PODS, ApiState, decode, key
from pumice.embedded.apiserver.deleting import FOREGROUND, ORPHAN
from pumice.embedded.apiserver.replies import Object
from pumice.embedded.apiserver.store import DELETED, StoreWrite

_KUBERNETES: Final = "kubernetes"
ObjectKey = tuple[str, str]
"""Kind and key of an object."""


class GarbageCollector:
    """The index of owner references, and the queue of changes to handle."""

    def __init__(self, api: ApiState) -> None:
        self._api = api
        self._live: set[str] = set()
        self._dependents: dict[str, set[ObjectKey]] = {}
        self._references: dict[ObjectKey, tuple[str, ...]] = {}
        self._due: deque[tuple[str, Any]] = deque()
        api.store.listeners.append(self._note)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to work off."""
        return not self._due

    def work(self) -> None:
        """Handle all queued changes, and those that follow from them."""
        handlers: dict[str, Callable[[Any], None]] = {
            "gone": self._collect,
            "check": self._check,
            "deleting": self._propagate,
            "namespace": self._end_namespace,
            "budgets": self._count_budgets,
        }
        while self._due:
            task, subject = self._due.popleft()
            handlers[task](subject)

    def index(self, resource_id: str, obj: Object) -> None:
        """Take in an object that a journal brought back."""
        self._index((resource_id, key(obj)), obj)

    def _index(self, ref: ObjectKey, obj: Object) -> None:
        meta = obj["metadata"]
        self._live.add(meta["uid"])
        owners = tuple(o["uid"] for o in meta.get("ownerReferences") or ())
        before = self._references.get(ref, ())
        if owners == before:
            return
        for uid in before:
            if uid not in owners:
                self._dependents.get(uid, set()).discard(ref)
        for uid in owners:
            self._dependents.setdefault(uid, set()).add(ref)
        if owners:
            self._references[ref] = owners
            self._due.append(("check", ref))
        else:
            self._references.pop(ref, None)

    def _note(self, change: StoreWrite, obj: Object) -> None:
        ref = (change.resource, change.key)
        meta = obj["metadata"]
        if change.resource == PODS and self._api.store.collection(BUDGETS).entries:
            self._due.append(("budgets", meta["namespace"]))
        if change.resource == BUDGETS and change.op != DELETED:
            self._due.append(("budgets", meta["namespace"]))
        if change.op == DELETED:
            self._forget(ref, obj)
            return
        self._index(ref, obj)
        if change.resource == NAMESPACES:
            self._note_namespace(obj)
        elif "deletionTimestamp" in meta and {FOREGROUND, ORPHAN} & set(meta.get("finalizers", ())):
            self._due.append(("deleting", ref))

    def _note_namespace(self, obj: Object) -> None:
        meta = obj["metadata"]
        if "deletionTimestamp" in meta:
            self._due.append(("namespace", meta["name"]))
            return
        self._api.add("serviceaccounts.", meta["name"], "default")

    def _forget(self, ref: ObjectKey, obj: Object) -> None:
        meta = obj["metadata"]
        uid = meta["uid"]
        self._live.discard(uid)
        for owner in self._references.pop(ref, ()):
            self._dependents.get(owner, set()).discard(ref)
            if owner in self._live:
                self._due.append(("deleting", self._ref_of(owner, obj)))
        if self._dependents.get(uid):
            self._due.append(("gone", uid))
        else:
            self._dependents.pop(uid, None)
        namespace = meta.get("namespace")
        if namespace:
            found = self._api.find(NAMESPACES, "", namespace)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                self._due.append(("namespace", namespace))

    def _ref_of(self, owner: str, obj: Object) -> ObjectKey | None:
        for reference in obj["metadata"].get("ownerReferences") or ():
            if reference["uid"] == owner:
                resource = self._api.catalogue.of_kind(reference["apiVersion"], reference["kind"])
                if resource is not None:
                    space = obj["metadata"].get("namespace", "") if resource.namespaced else ""
                    return (resource.id, f"{space}/{reference['name']}")
        return None

    def _find(self, ref: ObjectKey | None) -> Object | None:
        if ref is None:
            return None
        entry = self._api.store.get(*ref)
        return None if entry is None else decode(entry.body)

    def _collect(self, uid: str) -> None:
        """Check all dependents of an object that was deleted."""
        for ref in sorted(self._dependents.get(uid, ())):
            self._check(ref)

    def _check(self, ref: ObjectKey) -> None:
        """Delete an object all of whose owners are gone; drop references to those that are."""
        obj = self._find(ref)
        if obj is None:
            return
        references = obj["metadata"].get("ownerReferences") or []
        alive = [r for r in references if not self._is_absent(r)]
        if not references or len(alive) == len(references):
            return
        if alive:
            obj["metadata"]["ownerReferences"] = alive
            self._api.write(ref[0], obj)
        else:
            self._delete(ref, obj)

    def _is_absent(self, reference: Object) -> bool:
        """Return whether an owner does not exist; False for kinds that are not served here."""
        if reference["uid"] in self._live:
            return False
        kind = self._api.catalogue.of_kind(reference["apiVersion"], reference["kind"])
        return kind is not None

    def _delete(self, ref: ObjectKey, obj: Object) -> None:
        meta = obj["metadata"]
        if "deletionTimestamp" in meta:
            return
        grace = 0
        if ref[0] == PODS and (obj.get("spec") or {}).get("nodeName"):
            ended = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            grace = 0 if ended else obj["spec"].get("terminationGracePeriodSeconds", 30)
        if not grace and not meta.get("finalizers"):
            self._api.remove(ref[0], obj)
            return
        meta["deletionTimestamp"] = self._api.timestamp(grace)
        meta["deletionGracePeriodSeconds"] = grace
        if "generation" in meta:
            meta["generation"] += 1
        self._api.write(ref[0], obj)

    def _propagate(self, ref: ObjectKey | None) -> None:
        """Continue with a foreground or orphaning deletion."""
        obj = self._find(ref)
        if ref is None or obj is None or "deletionTimestamp" not in obj["metadata"]:
            return
        meta = obj["metadata"]
        finalizers = meta.get("finalizers") or []
        if ORPHAN in finalizers:
            self._orphan(meta["uid"])
            self._finish(ref, ORPHAN)
        elif FOREGROUND in finalizers and not self._still_blocking(meta["uid"]):
            self._finish(ref, FOREGROUND)

    def _orphan(self, uid: str) -> None:
        for ref in sorted(self._dependents.get(uid, ())):
            obj = self._find(ref)
            if obj is None:
                continue
            left = [r for r in obj["metadata"]["ownerReferences"] if r["uid"] != uid]
            if left:
                obj["metadata"]["ownerReferences"] = left
            else:
                del obj["metadata"]["ownerReferences"]
            self._api.write(ref[0], obj)

    def _still_blocking(self, uid: str) -> bool:
        blocking = False
        for ref in sorted(self._dependents.get(uid, ())):
            obj = self._find(ref)
            if obj is None:
                continue
            own = next(r for r in obj["metadata"]["ownerReferences"] if r["uid"] == uid)
            self._delete(ref, obj)
            if own.get("blockOwnerDeletion"):
                blocking |= self._api.store.get(*ref) is not None
        return blocking

    def _finish(self, ref: ObjectKey, finalizer: str) -> None:
        obj = self._find(ref)
        if obj is None:
            return
        left = [f for f in obj["metadata"].get("finalizers") or () if f != finalizer]
        if left:
            obj["metadata"]["finalizers"] = left
            self._api.write(ref[0], obj)
        else:
            obj["metadata"].pop("finalizers", None)
            self._api.remove(ref[0], obj)

    def _end_namespace(self, name: str) -> None:
        """Delete the objects of a namespace, and the namespace once it is empty."""
        namespace = self._api.find(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        left = False
        for resource_id, collection in list(self._api.store.collections.items()):
            for found in list(collection.keys(f"{name}/")):
                entry = collection.entries.get(found)
                if entry is not None:
                    self._delete((resource_id, found), decode(entry.body))
                    left |= found in collection.entries
        if left:
            return
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        rest = [f for f in finalizers if f != _KUBERNETES]
        if rest or namespace["metadata"].get("finalizers"):
            if rest != finalizers:
                self._api.write(
                    NAMESPACES, {**namespace, "spec": {**namespace["spec"], "finalizers": rest}}
                )
            return
        self._api.remove(NAMESPACES, namespace)

    def _count_budgets(self, namespace: str) -> None:
        for budget in self._api.objects(BUDGETS, namespace):
            status = self._budget_status(budget)
            if (budget.get("status") or {}) != status:
                self._api.write(BUDGETS, {**budget, "status": status})

    def _budget_status(self, budget: Object) -> Object:
        spec, meta = budget.get("spec") or {}, budget["metadata"]
        chosen = selecting.of_spec(spec.get("selector"))
        pods = [
            pod
            for pod in self._api.objects(PODS, meta["namespace"])
            if chosen(pod["metadata"].get("labels") or {})
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        healthy = sum(_is_healthy(pod) for pod in pods)
        if "maxUnavailable" in spec:
            desired = max(0, len(pods) - _share(spec["maxUnavailable"], len(pods)))
        else:
            desired = _share(spec.get("minAvailable", 0), len(pods))
        allowed = max(0, healthy - desired) if pods else 0
        reason = "SufficientPods" if allowed else "InsufficientPods"
        old = (budget.get("status") or {}).get("conditions") or [{}]
        value = "True" if allowed else "False"
        stamp = self._api.timestamp()
        since = old[0].get("lastTransitionTime") if old[0].get("status") == value else stamp
        return {
            "conditions": [
                {
                    "type": "DisruptionAllowed",
                    "status": value,
                    "reason": reason,
                    "message": "",
                    "lastTransitionTime": since,
                    "observedGeneration": meta.get("generation", 1),
                }
            ],
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": len(pods),
            "observedGeneration": meta.get("generation", 1),
        }


def _is_healthy(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _share(value: int | str, of: int) -> int:
    """Return a count, or a percentage of a count rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * of // 100)
    return int(value)
