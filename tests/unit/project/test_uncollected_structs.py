"""Structs that the garbage collector does not see (`gc=False`) cannot contain themselves.

A cycle of such structs is never freed. Objects of Kubernetes are decoded from text, which has no
cycles.
"""

import importlib
import pkgutil
import typing
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Any

import msgspec
import pytest

import pumice
import services
import shared
from shared.api.base import View

CHANGING = (MutableSequence, MutableSet, MutableMapping, Mapping)
"""Containers that may get their elements after the struct that they are in."""


SCRIPTS = ("__main__", "migrations.env")
OPTIONAL = () if find_spec("sqlalchemy") else ("services.accounting.",)
"""Modules whose extra is not installed here; the environment of `make setup` has them all."""


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith(SCRIPTS) and not found.name.startswith(OPTIONAL):
            yield importlib.import_module(found.name)


def uncollected() -> Iterator[type[msgspec.Struct]]:
    for package in (shared, services, pumice):
        for module in modules(package):
            for each in vars(module).values():
                is_struct = isinstance(each, type) and issubclass(each, msgspec.Struct)
                if is_struct and not each.__struct_config__.gc:
                    yield each


def contents(hint: Any, *, later: bool, seen: set[Any]) -> Iterator[tuple[type, bool]]:
    """Yield the types that a value of a type may hold, and whether as a later addition."""
    if (hint, later) in seen:
        return
    seen.add((hint, later))
    origin = typing.get_origin(hint)
    if origin is Annotated:
        hint = typing.get_args(hint)[0]
        origin = typing.get_origin(hint)
    if origin is not None:
        is_changing = isinstance(origin, type) and issubclass(origin, CHANGING)
        for argument in typing.get_args(hint):
            yield from contents(argument, later=later or is_changing, seen=seen)
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint, later
        for each in typing.get_type_hints(hint, include_extras=True).values():
            yield from contents(each, later=later, seen=seen)


def can_contain_itself(struct: type[msgspec.Struct]) -> bool:
    for hint in typing.get_type_hints(struct, include_extras=True).values():
        for found, later in contents(hint, later=not struct.__struct_config__.frozen, seen=set()):
            if found is struct and later:
                return True
    return False


STRUCTS = sorted(set(uncollected()), key=lambda struct: f"{struct.__module__}.{struct.__name__}")


def test_there_are_structs_that_the_collector_does_not_see() -> None:
    assert len(STRUCTS) > 20


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda s: f"{s.__module__}.{s.__name__}")
def test_a_struct_that_the_collector_does_not_see_cannot_contain_itself(
    struct: type[msgspec.Struct],
) -> None:
    assert issubclass(struct, View) or not can_contain_itself(struct)


class Growing(msgspec.Struct, frozen=True, gc=False):
    parts: "list[Growing]" = []


class Finished(msgspec.Struct, frozen=True, gc=False):
    parts: "tuple[Finished, ...]" = ()


def test_the_rule_tells_a_list_that_grows_from_what_was_there_before() -> None:
    assert can_contain_itself(Growing)
    assert not can_contain_itself(Finished)
