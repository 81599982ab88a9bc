"""What can be set about the controller; flags bear Volcano's names (M04)."""

from typing import Annotated, Final

from msgspec import Meta

from shared.runtime.common import CommonSettings
from shared.runtime.values import Seconds


class ControllerSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one controller process.

    Flags of Volcano that mean nothing here are accepted and, when given, named in the log.
    """

    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="schedulers whose pods get groups; jobs without one get the first"),
    ] = ("volcano",)
    worker_threads: Annotated[int, Meta(description="jobs looked at at once", ge=1)] = 50
    worker_threads_for_podgroup: Annotated[
        int, Meta(description="bare pods looked at at once", ge=1)
    ] = 5
    max_requeue_num: Annotated[
        int,
        Meta(description="refusals in a row after which a job is terminated; -1: never", ge=-1),
    ] = 15
    inherit_owner_annotations: Annotated[
        bool, Meta(description="groups of bare pods inherit volcano.sh/ annotations of the owner")
    ] = True
    kube_api_qps: Annotated[
        float, Meta(description="most API requests per second; 0: no bound", ge=0)
    ] = 2000.0
    kube_api_burst: Annotated[
        int, Meta(description="API requests that may go out at once", ge=1)
    ] = 2000
    requests_most: Annotated[int, Meta(description="most API requests under way", ge=1)] = 64
    request_timeout: Annotated[
        Seconds, Meta(description="time for one answer of the API server", gt=0)
    ] = Seconds(10.0)
    jobs_most: Annotated[
        int, Meta(description="jobs that may wait for a look before readers wait", ge=1)
    ] = 200_000
    leader_elect: Annotated[
        bool,
        Meta(description="accepted for Volcano's sake: replicas share the work, none leads (M02)"),
    ] = True
    leader_elect_lease_duration: Annotated[
        Seconds, Meta(description="accepted, no effect: leases of partitions are Pumice's own")
    ] = Seconds(15.0)
    leader_elect_renew_deadline: Annotated[
        Seconds, Meta(description="accepted, no effect, likewise")
    ] = Seconds(10.0)
    leader_elect_retry_period: Annotated[
        Seconds, Meta(description="accepted, no effect, likewise")
    ] = Seconds(2.0)
    leader_elect_resource_namespace: Annotated[
        str, Meta(description="accepted, no effect, likewise")
    ] = ""
    lock_object_namespace: Annotated[str, Meta(description="accepted, no effect, likewise")] = ""
    worker_threads_for_queue: Annotated[
        int, Meta(description="accepted, no effect: one worker keeps all queues", ge=1)
    ] = 5


WITHOUT_EFFECT: Final = (
    "leader_elect",
    "leader_elect_lease_duration",
    "leader_elect_renew_deadline",
    "leader_elect_retry_period",
    "leader_elect_resource_namespace",
    "lock_object_namespace",
    "worker_threads_for_queue",
)


def idle_flags(settings: ControllerSettings) -> list[str]:
    """Return the flags that were given and have no effect."""
    plain = ControllerSettings()
    return [
        f"--{name.replace('_', '-')}"
        for name in WITHOUT_EFFECT
        if getattr(settings, name) != getattr(plain, name)
    ]
