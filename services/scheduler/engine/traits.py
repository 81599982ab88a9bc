"""Annotations of pods that some plugin's scores and predicates read, as traits of the class (KY1).

Pods that carry none of them, nearly all, share one class as if there were no traits.
"""

from typing import Final

from services.scheduler.engine.vcards import GROUP, SPREAD_POLICY, WISHES
from shared.api import keys
from shared.api.core import Pod
from shared.model.numbers import parse_bool

REVOCABLE: Final = keys.REVOCABLE_ZONE
"""Trait of pods that may run on nodes which are taken away again; its value is `*`."""
_AS_WRITTEN: Final = (
    keys.RESOURCE_STRATEGY_TYPE,
    keys.RESOURCE_STRATEGY_WEIGHT,
    keys.NUMA_TOPOLOGY_POLICY,
    *WISHES,
)


def traits_of(pod: Pod) -> dict[str, str]:
    """Return the traits that a pod's annotations give it."""
    annotations = pod.metadata.annotations
    if not annotations:
        return {}
    traits = {key: annotations[key] for key in _AS_WRITTEN if key in annotations}
    if annotations.get(SPREAD_POLICY) == "spread":
        group = annotations.get(keys.GROUP_NAME_VOLCANO) or annotations.get(keys.GROUP_NAME)
        if group:
            traits[GROUP] = f"{pod.metadata.namespace}/{group}"
    zone = annotations.get(keys.REVOCABLE_ZONE)
    if zone == "*" or (zone is None and parse_bool(annotations.get(keys.PREEMPTABLE))):
        traits[REVOCABLE] = "*"
    return traits
