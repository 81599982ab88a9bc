"""Settings of the scheduler, under Volcano's flag names where it has one (K10, K11)."""

from typing import Annotated

from msgspec import Meta

from shared.contracts.streams import PARTITIONS
from shared.runtime.common import CommonSettings
from shared.runtime.values import Seconds


class SchedulerSettings(CommonSettings, frozen=True, kw_only=True):
    """What the scheduler can be told."""

    scheduler_name: Annotated[
        tuple[str, ...], Meta(description="spec.schedulerName values that are served")
    ] = ("volcano",)
    scheduler_conf: Annotated[
        str,
        Meta(description="configuration file of Volcano's form; reread at once when replaced"),
    ] = ""
    schedule_period: Annotated[
        Seconds, Meta(description="upper bound between two cycles; changes are acted on at once")
    ] = Seconds(1.0)
    min_period: Annotated[
        Seconds, Meta(description="lower bound between the starts of two cycles", ge=0)
    ] = Seconds(0.02)
    debounce: Annotated[
        Seconds, Meta(description="how long to gather changes before a cycle starts", ge=0)
    ] = Seconds(0.005)
    status_settle: Annotated[
        Seconds,
        Meta(
            description="how long a condition or counter must stand before it is written; "
            "a new phase is written at once",
            ge=0,
        ),
    ] = Seconds(1.0)
    default_queue: Annotated[
        str, Meta(description="queue of PodGroups that name none", min_length=1)
    ] = "default"
    seed: Annotated[
        int, Meta(description="chooses among nodes of equal score; 0: the first in order")
    ] = 0
    partitions: Annotated[
        int, Meta(description="partitions of COMMAND and DESIRED", ge=1, le=64)
    ] = PARTITIONS
    gang_message: Annotated[
        int, Meta(description="most binds in one message; a larger gang is split", ge=1)
    ] = 500
