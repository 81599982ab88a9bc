"""A plugin of another distribution: built, and guarded against its errors.

An exception of one of its functions, or a result that cannot be used, affects only that call: it is
reported with the names of plugin and extension point, and a fixed result replaces it
(`pumice.plugins.guarding`). A plugin that fails before it has contributed is skipped in this cycle.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from typing_extensions import override

from pumice.plugins import Arguments, Cluster, Hooks, Plugin, PolicyState
from pumice.plugins.guarding import Guard
from pumice.plugins.point import Point
from services.scheduler.foreign_states import guarded
from services.scheduler.policy.arguments import BadArgument

_C = TypeVar("_C")


class PluginFailure(NamedTuple):
    """One failure of a foreign plugin."""

    plugin: str
    origin: str
    """Distribution and entry point that it comes from."""
    point: str
    """Extension point, or `contribute`."""
    error: str


class ForeignPlugin:
    """Builds a guarded plugin of another distribution; an entry of the catalogue."""

    def __init__(
        self,
        kind: Callable[[Arguments], Plugin],
        *,
        name: str,
        origin: str,
        note: Callable[[PluginFailure], None],
    ) -> None:
        self._kind = kind
        self.name = name
        self.origin = origin
        self._note = note
        self._unsteady: set[str] = set()
        """Points whose answers failed once; they are not kept between cycles any more."""
        self._is_off = False
        """Whether a state of it failed."""

    def states(self) -> tuple[Callable[[], PolicyState], ...]:
        """Return factories of its states; a failure of one switches the plugin off."""
        kinds: tuple[type[PolicyState], ...] = getattr(self._kind, "states", ())
        return tuple(guarded(kind, plugin=self.name, failed=self._state_failed) for kind in kinds)

    def _state_failed(self, point: str, error: Exception) -> None:
        self._is_off = True
        self._failed(point, error)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Build the plugin once, as a configuration is loaded. Raises `BadArgument`."""
        try:
            self._kind(arguments)
        except Exception as error:
            raise BadArgument(f"{described(error)} (from {self.origin})") from error

    def __call__(self, arguments: Arguments) -> "_Guarded":
        """Return the plugin for one cycle."""
        guard = Guard(self.name, self._failed, self._unsteady)
        return _Guarded(self.name, lambda: self._kind(arguments), guard, is_off=self._is_off)

    def _failed(self, point: str, error: Exception) -> None:
        self._note(PluginFailure(self.name, self.origin, point, described(error)))


class _Guarded:
    """The plugin within one cycle; implements `pumice.plugins.Plugin`."""

    def __init__(
        self, name: str, build: Callable[[], Plugin], guard: Guard, *, is_off: bool
    ) -> None:
        self.name = name
        self._build = build
        self._guard = guard
        self._is_off = is_off

    def contribute(self, hooks: Hooks, cluster: Cluster) -> None:
        """Add all contributions of the plugin, or none if it fails or a state of it has failed."""
        if self._is_off:
            return
        self._guard.nodes, self._guard.amounts = len(cluster.node_names), len(cluster.total)
        collected = GuardedHooks(hooks, self._guard)
        if self._guard.attempt("contribute", lambda: self._contribute(collected, cluster)):
            collected.hand_over()

    def _contribute(self, hooks: Hooks, cluster: Cluster) -> bool:
        self._build().contribute(hooks, cluster)
        return True


class GuardedHooks(Hooks):
    """Takes a foreign plugin's contributions; nothing reaches the engine before `hand_over`."""

    def __init__(self, hooks: Hooks, guard: Guard) -> None:
        self._hooks = hooks
        self._guard = guard
        self._collected: list[Callable[[], None]] = []

    def hand_over(self) -> None:
        """Give everything to the engine."""
        for give in self._collected:
            give()

    @override
    def enabled(self, flag: str) -> bool:
        """Tell whether a flag of the plugin is set."""
        return self._hooks.enabled(flag)

    @override
    def add(self, point: Point[..., _C, Any], contribution: _C) -> None:
        """Guard a contribution and store it; raises `BadResult` for an invalid one."""
        guarded = point.guarded(self._guard, point.name, contribution)
        self._collected.append(lambda: self._hooks.add(point, guarded))


def described(error: Exception) -> str:
    """Return an exception as one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
