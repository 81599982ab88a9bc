"""Settings of the cache; flags of the Leases have Volcano's names (M02, K10)."""

from typing import Annotated, Final

from msgspec import Meta

from shared.election.cluster_lease import LeaseTimes
from shared.runtime.common import ApiBurst, ApiQps, ApiTimeout, CommonSettings, StateKey, inert
from shared.runtime.errors import Rejected
from shared.runtime.values import Seconds, Secret

_JITTER: Final = 1.2
"""How much longer than the retry period the deadline must be, as for Kubernetes' own clients."""


class CacheSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one cache process."""

    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="schedulerName of pods that are published before they have a node (K10)"),
    ] = ("volcano",)
    state_key: StateKey = Secret()
    mindcluster_npus: Annotated[
        bool,
        Meta(
            description="publish MindCluster's data about NPUs; needs rights on ConfigMaps in "
            "namespace mindx-dl"
        ),
    ] = False
    kube_api_qps: ApiQps = 2000.0
    kube_api_burst: ApiBurst = 2000
    request_timeout: ApiTimeout = Seconds(30.0)
    leader_elect: Annotated[
        bool,
        Meta(
            description="hold the Leases of the active installation; without, two installations "
            "may act at once"
        ),
    ] = True
    leader_elect_lease_duration: Annotated[
        Seconds,
        Meta(description="duration of a Lease", ge=1),
    ] = Seconds(15.0)
    leader_elect_renew_deadline: Annotated[
        Seconds,
        Meta(description="time without a renewal after which nothing is written", gt=0),
    ] = Seconds(10.0)
    leader_elect_retry_period: Annotated[
        Seconds, Meta(description="how often a Lease held by another is checked", gt=0)
    ] = Seconds(2.0)
    leader_elect_resource_lock: Annotated[str, inert("Leases and nothing else")] = "leases"
    leader_elect_resource_name: Annotated[
        str, Meta(description="Lease of scheduler and binder", min_length=1)
    ] = "volcano"
    leader_elect_controller_resource_name: Annotated[
        str, Meta(description="Lease of the controller", min_length=1)
    ] = "vc-controller-manager"
    leader_elect_resource_namespace: Annotated[
        str, Meta(description="namespace of both Leases; created if missing", min_length=1)
    ] = "volcano-system"
    lock_object_namespace: Annotated[
        str, Meta(description="old name of --leader-elect-resource-namespace; takes precedence")
    ] = ""


def lease_times(settings: CacheSettings) -> LeaseTimes:
    """Return the times of Leases as the settings say. Raises Rejected when they contradict."""
    duration = settings.leader_elect_lease_duration
    deadline = settings.leader_elect_renew_deadline
    retry = settings.leader_elect_retry_period
    if not duration > deadline or not deadline > _JITTER * retry:
        raise Rejected(
            f"leader-elect-lease-duration {duration:g}s, leader-elect-renew-deadline {deadline:g}s "
            f"and leader-elect-retry-period {retry:g}s: each must be longer than the one after it, "
            f"the deadline than {_JITTER:g} times the retry period",
            field="leader_elect_renew_deadline",
        )
    return LeaseTimes(duration_s=duration, deadline_s=deadline, retry_s=retry)
