"""What can be set about the cache."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.contracts.streams import MIB
from shared.runtime.common import ApiBurst, ApiQps, ApiTimeout, CommonSettings
from shared.runtime.values import Seconds


class CacheSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one cache process."""

    scheduler_name: Annotated[
        tuple[str, ...],
        Meta(description="schedulerName of the pods that are ours before they have a node (K10)"),
    ] = ("volcano",)
    kube_api_qps: ApiQps = 2000.0
    kube_api_burst: ApiBurst = 2000
    request_timeout: ApiTimeout = Seconds(30.0)
    state_storage: Annotated[
        Literal["memory", "file"],
        Meta(description="where the STATE stream lives; it can be built again at any time"),
    ] = "memory"
    state_bytes: Annotated[int, Meta(description="bound of the STATE stream in bytes", ge=MIB)] = (
        2048 * MIB
    )
