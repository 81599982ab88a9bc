"""Finds the workload of the table that a pod belongs to, by reading its owners.

A chain of owners is read from the pod upwards, eight links at most. The uppermost workload of a
kind with an enabled row counts. What is read counts for some seconds, so that a burst of pods of
one workload is one request.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from services.controller.adapters.config_map import ConfigMapReader
from services.controller.adapters.reconciler import ControllerContext
from services.controller.podgroup import rows
from services.controller.podgroup.rows import DEFAULT, Rows
from services.controller.podgroup.workloads import GroupedWorkload
from shared.api.core import Pod
from shared.api.meta import OwnerReference
from shared.kube.decode import PartialObject
from shared.kube.errors import Denied
from shared.kube.owners import OwnerReader
from shared.kube.wire import JSON, METADATA_ONLY
from shared.runtime.errors import Gone

_DEPTH_MAX: Final = 8
_KEPT_MAX: Final = 4_096
_ROWS_S: Final = 10.0
KEPT_S: Final = 5.0


class WorkloadOwners:
    """Reads owners, and the table of workloads."""

    def __init__(self, manager: ControllerContext) -> None:
        at = manager.settings.workload_groups_config_map
        self._clock = manager.env.clock
        self._log = manager.env.log
        self._file = ConfigMapReader(
            manager,
            at if "/" in at else f"{manager.namespace}/{at}",
            key=rows.KEY,
            name="workload_groups",
            parse=rows.parse,
        )
        self._rows: Rows = DEFAULT
        self._rows_until = float("-inf")
        kube = manager.kube
        self._reader = OwnerReader(
            lambda path, accept: kube.request("GET", path, accept=accept), manager.env.clock
        )
        self._kept: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()
        """Uid of an owner → until when it counts, and the owner as it was read."""

    async def find(self, pod: Pod) -> GroupedWorkload | None:
        """Return the workload whose PodGroup a pod belongs in, None if it is in no row.

        Raises errors of `shared.runtime.errors` if an owner cannot be read now.
        """
        await self._read_rows()
        found, namespace = None, pod.metadata.namespace
        owner = pod.metadata.controller
        for _ in range(_DEPTH_MAX):
            if owner is None:
                break
            row = self._rows.get((owner.api_version.rpartition("/")[0], owner.kind))
            row = row if row is not None and row.enabled else None
            raw = await self._read(owner, namespace, whole=row is not None)
            if raw is None:
                break
            metadata = msgspec.json.decode(raw, type=PartialObject).metadata
            if metadata.uid != owner.uid:
                break
            if row is not None:
                content = msgspec.json.decode(raw)
                found = GroupedWorkload(
                    row=row, api_version=owner.api_version, metadata=metadata, content=content
                )
            owner = metadata.controller
        return found

    async def _read_rows(self) -> None:
        now = self._clock.monotonic()
        if now < self._rows_until:
            return
        self._rows_until = now + _ROWS_S
        changed = await self._file.changed()
        if changed is not None:
            self._rows = changed
            self._log.info("workload_groups_config_read", rows=len(changed))
        elif not self._file.is_there:
            self._rows = DEFAULT

    async def _read(self, owner: OwnerReference, namespace: str, *, whole: bool) -> bytes | None:
        """Return an owner, None if it is gone or may not be read."""
        now = self._clock.monotonic()
        until, raw = self._kept.get(owner.uid, (now, None))
        if until > now:
            return raw
        try:
            raw = await self._reader.read(
                owner.api_version,
                owner.kind,
                namespace,
                owner.name,
                accept=JSON if whole else METADATA_ONLY,
            )
        except Denied as error:
            self._log.warning("owner_not_readable", kind=owner.kind, reason=str(error))
            raw = None
        except Gone:
            raw = None
        self._kept[owner.uid] = (now + KEPT_S, raw)
        self._kept.move_to_end(owner.uid)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return raw
