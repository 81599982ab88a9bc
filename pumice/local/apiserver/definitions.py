"""CRDs: the kinds that they define are served as soon as they are written."""

from typing import Final

from pumice.local.apiserver.answers import Object
from pumice.local.apiserver.store import DELETED, Change
from pumice.local.apiserver.world import CRDS, World, decode

_ACCEPTED: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


class Definitions:
    """Serves the kinds of all CRDs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._due: list[str] = []
        world.store.listeners.append(self._note)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to work off."""
        return not self._due

    def serve(self, crd: Object) -> None:
        """Serve the kinds of a CRD."""
        self._world.catalogue.replace(crd, served=True)

    def _note(self, change: Change, obj: Object) -> None:
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
            crd = self._world.find(CRDS, "", name)
            if crd is not None:
                self._world.write(CRDS, {**crd, "status": self._status(crd)})

    def _status(self, crd: Object) -> Object:
        spec, stamp = crd["spec"], self._world.timestamp()
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
        collection = self._world.store.collection(resource_id)
        for key in list(collection.keys("")):
            self._world.remove(resource_id, decode(collection.entries[key].body))
        self._world.catalogue.replace(crd, served=False)
