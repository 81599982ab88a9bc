"""Settings of accounting."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from shared.runtime.common import CommonSettings
from shared.runtime.values import Seconds, Secret, seconds

METRICS_BY: Final = {"queue": ("queue",), "user": ("queue", "user")}
"""Value of `usage_metrics` → groups of the sums."""


class AccountingSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of the one accounting process."""

    database: Annotated[
        str,
        Meta(description="URL of the database: sqlite:///PATH or postgresql://USER@HOST/NAME"),
    ] = "sqlite:///usage.db"
    database_password: Annotated[Secret, Meta(description="password for the database")] = Secret()
    usage_half_life: Annotated[
        Seconds,
        Meta(description="time after which past usage counts half (plugin fairshare)", gt=0),
    ] = seconds("168h")
    scheduler_conf: Annotated[
        str,
        Meta(description="the scheduler's configuration file; its budgets say what to sum"),
    ] = ""
    usage_metrics: Annotated[
        Literal["none", "queue", "user"],
        Meta(
            description="metrics of this month's usage, by queue or by queue and user: "
            "who may read metrics then sees users"
        ),
    ] = "none"
    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="spec.schedulerName values whose pods are recorded", min_length=1),
    ] = ("volcano",)
