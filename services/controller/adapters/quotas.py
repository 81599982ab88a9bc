"""Selects the changes of a ResourceQuota after which jobs over quota are reconciled."""

from services.controller.adapters.store import ObjectChange, Touched
from shared.api import kinds
from shared.api.core import ResourceQuota, ResourceQuotaStatus
from shared.model.quantity import milli


def quota_changed(change: ObjectChange[ResourceQuota], touched: Touched) -> None:
    """Touch a quota that has more room than before; less room concerns nobody.

    The API server checks the status, which the quota controller updates.
    """
    if change.before is not None and (
        change.after is None or _has_more_room(change.before.status, change.after.status)
    ):
        touched.add(kinds.RESOURCEQUOTA, change.key)


def _has_more_room(before: ResourceQuotaStatus, after: ResourceQuotaStatus) -> bool:
    """Tell whether a limit of a quota was removed, or leaves more room."""
    if not before.hard.keys() <= after.hard.keys():
        return True
    return any(_room(after, name) > _room(before, name) for name in before.hard)


def _room(status: ResourceQuotaStatus, name: str) -> int:
    return milli(status.hard[name]) - milli(status.used.get(name, 0))
