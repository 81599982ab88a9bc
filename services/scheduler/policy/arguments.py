"""Reading a plugin's or action's arguments.

A value of the wrong kind is refused when the configuration is loaded (upstream takes the default
and logs); numbers and booleans may be quoted, as users of Volcano write them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from typing_extensions import override

from pumice.plugins import Arguments
from shared.model import durations
from shared.model.numbers import parse_bool


class BadArgument(ValueError):  # noqa: N818 - reads as the fact it states
    """An argument that cannot be used; the message names it."""


HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "predicates": frozenset(
        {
            "predicate.CacheEnable",
            "predicate.DynamicResourceAllocationEnable",
            "volumebinding.bindTimeoutSeconds",
            "volumebinding.shape",
            "volumebinding.weight",
            "dynamicresources.filterTimeoutSeconds",
        }
    ),
    "deviceshare": frozenset(
        {"deviceshare.KnownGeometriesCMName", "deviceshare.KnownGeometriesCMNamespace"}
    ),
    "capacity": frozenset(
        {"predicate.DynamicResourceAllocationEnable", "capacity.DRAConsumableCapacityEnable"}
    ),
    "rescheduling": frozenset({"metricsPeriod"}),
    "fairshare": frozenset(
        {
            "fairshare.persistState",
            "fairshare.stateNamespace",
            "fairshare.stateConfigMap",
            "fairshare.flushIntervalSeconds",
        }
    ),
}
"""Arguments of Volcano's plugins that have no effect here."""
HARMLESS_OF_ACTIONS: Final = frozenset(
    {"predicateErrorCacheEnable", "topologyAwarePreemptWorkerNum"}
)
"""The same of its actions (K07)."""
_SWITCH: Final = "enable"


class ReadArguments(Mapping[str, Any]):
    """Arguments that record which keys are read: an unread key is misspelt."""

    def __init__(self, given: Arguments) -> None:
        self._given = given
        self.read: set[str] = set()
        """Names of arguments that were read."""
        self._sections: dict[str, ReadArguments] = {}

    @override
    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        value = self._given[key]
        if not isinstance(value, Mapping):
            return value
        return self._sections.setdefault(key, ReadArguments(value))

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    @override
    def __len__(self) -> int:
        return len(self._given)

    def unread(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield each argument that was not read, with the names that were read in its place.

        A section that is switched off is skipped, because only its switch is read.
        """
        for key in self._given:
            if key not in self.read:
                yield key, frozenset(self.read)
            elif (section := self._sections.get(key)) and section.read - {_SWITCH}:
                for inner, others in section.unread():
                    yield f"{key}.{inner}", others


def integer(arguments: Arguments, key: str, default: int) -> int:
    """Return an integer argument; `1.0` is one, as for Volcano. Raises BadArgument."""
    value = _given(arguments, key, default)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return int(str(value))
    except ValueError as error:
        raise BadArgument(f"{key}: {value!r} is no integer") from error


def number(arguments: Arguments, key: str, default: float) -> float:
    """Return a numeric argument. Raises BadArgument."""
    value = _given(arguments, key, default)
    try:
        return float(str(value))
    except ValueError as error:
        raise BadArgument(f"{key}: {value!r} is no number") from error


def boolean(arguments: Arguments, key: str, *, default: bool) -> bool:
    """Return a true or false argument. Raises BadArgument."""
    value = str(_given(arguments, key, default))
    truth = parse_bool(value)
    if truth is None:
        raise BadArgument(f"{key}: {value!r} is neither true nor false")
    return truth


def seconds(arguments: Arguments, key: str, default: float) -> float:
    """Return a duration, `90s`, `5m` or a plain number of seconds; not negative.

    Raises BadArgument.
    """
    text = str(_given(arguments, key, default))
    found = durations.setting(text)
    if found is None or found < 0:
        raise BadArgument(f"{key}: {text!r} is no duration such as 300s or 5m")
    return found


def text(arguments: Arguments, key: str, default: str = "") -> str:
    """Return a text argument. Raises BadArgument."""
    value = _given(arguments, key, default)
    if not isinstance(value, str):
        raise BadArgument(f"{key}: {value!r} is no text")
    return value


def names(arguments: Arguments, key: str) -> list[str]:
    """Return a comma separated list."""
    value = arguments.get(key)
    if value is None:
        return []
    return [name.strip() for name in str(value).split(",") if name.strip()]


def _given(arguments: Arguments, key: str, default: object) -> Any:  # noqa: ANN401 - free YAML
    value = arguments.get(key)
    return default if value is None or value == "" else value
