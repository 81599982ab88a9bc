"""Lists as the aggregated API answers them. Pure."""

from typing import Generic, TypeVar

from shared.api.base import View

_T = TypeVar("_T")


class Items(View, Generic[_T], frozen=True, kw_only=True):
    """The objects of a list."""

    items: tuple[_T, ...] = ()
