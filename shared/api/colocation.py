"""ColocationConfiguration (config.volcano.sh): memory QoS of pods that a selector chooses (C11).

Volcano's node agent acts on it. No service of Pumice reads it; the CRD is there so that manifests
that contain such objects can be applied.
"""

from typing import Annotated

from msgspec import Meta, field

from shared.api.base import View, default, doc
from shared.api.conditions import Condition
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector

Percent = Annotated[int, Meta(ge=0, le=100)]


class MemoryQos(View, frozen=True, kw_only=True):
    """Shares of a container's memory, in percent."""

    high_ratio: Annotated[
        Percent, default(100), doc("Percentage of the limit at which memory is throttled.")
    ] = 100
    low_ratio: Annotated[
        Percent, default(0), doc("Percentage of the request that is protected from reclaim.")
    ] = 0
    min_ratio: Annotated[
        Percent, default(0), doc("Percentage of the request that is never reclaimed.")
    ] = 0


class ColocationConfigurationSpec(View, frozen=True, kw_only=True):
    """Which pods, and what the node agent does with them (C11a)."""

    selector: Annotated[LabelSelector, doc("Pods of the namespace.")] | None = None
    memory_qos: Annotated[MemoryQos, doc("Memory QoS of the pods.")] | None = None


class ColocationConfigurationStatus(View, frozen=True, kw_only=True):
    """Status of a ColocationConfiguration."""

    conditions: Annotated[tuple[Condition, ...], doc("Latest conditions.")] = ()


class ColocationConfiguration(View, frozen=True, kw_only=True):
    """Memory QoS of pods, for Volcano's node agent."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ColocationConfigurationSpec, doc("Desired state.")] = field(
        default_factory=ColocationConfigurationSpec
    )
    status: Annotated[ColocationConfigurationStatus, doc("Observed state.")] = field(
        default_factory=ColocationConfigurationStatus
    )
