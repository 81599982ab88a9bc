"""Extension points: combines the results of a session's plugins by the table of points (SS05)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from typing_extensions import override

from pumice.plugins import Hooks
from pumice.plugins.combining import Tiers
from pumice.plugins.contributions import Predicate, Rank
from pumice.plugins.point import Point
from pumice.plugins.points import POINTS, Points

_C = TypeVar("_C")


class Combined(Points):
    """All contributions to a session: `combined.job_order(job)` asks all plugins, tier by tier."""

    def __init__(self) -> None:
        self._tiers: dict[str, Tiers[Any]] = {}

    if not TYPE_CHECKING:  # the rows of `Points` have the types

        def __getattr__(self, name: str) -> object:
            """Combine a point on first use: an idle cycle uses few of them."""
            point = POINTS.get(name)
            if point is None:
                raise AttributeError(name)
            combined = self.__dict__[name] = point.together(self.of(point))
            return combined

    def of(self, point: Point[..., _C, Any]) -> Tiers[_C]:
        """Return the contributions to a point, as `combined.of(Points.job_order)`."""
        found = self._tiers.get(point.name)
        if found is None:
            found = self._tiers[point.name] = Tiers()
        return found


class Registrar(Hooks):
    """Takes the functions of one plugin; those of points that are switched off are dropped."""

    def __init__(
        self, combined: Combined, *, tier: int, flags: Mapping[str, bool], identity: str
    ) -> None:
        self._combined = combined
        self._tier = tier
        self._flags = flags
        self._identity = identity
        self._added = 0

    @override
    def enabled(self, flag: str) -> bool:
        """Tell whether a flag of the plugin is set."""
        return self._flags[flag]

    @override
    def add(self, point: Point[..., _C, Any], contribution: _C) -> None:
        """Add a contribution, unless the plugin's flags switch its point off."""
        if point.flag and not self._flags[point.flag]:
            return
        if isinstance(contribution, (Predicate, Rank)):
            self._added += 1
            named = contribution._replace(identity=f"{self._identity}#{self._added}")
            contribution = cast("_C", named)
        self._combined.of(point).add(self._tier, contribution)
