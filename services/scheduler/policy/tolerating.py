"""Whether tolerations cover a taint, after Kubernetes."""

from collections.abc import Sequence

from shared.api.selectors import Taint, Toleration, TolerationOperator


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Tell whether one of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == TolerationOperator.EXISTS:
        return True
    return bool(toleration.key) and toleration.value == taint.value
