"""GPUs that are cut into MIG instances as pods need them (DV2, Volcano's dynamic MIG); pure.

A geometry is a set of instances into which cards of some models can be cut. The first pod on a card
decides its geometry; others get what is left of that, until all pods have gone. The geometries are
in the arguments of `deviceshare`, in the words of Volcano's ConfigMap (`knownMigGeometries`).
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

from services.scheduler.policy.arguments import BadArgument

ARGUMENT: Final = "deviceshare.MIGGeometries"
_Amount = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Place = tuple[str, int]
"""Geometry, and position of an instance in it."""


class Profile(Struct, frozen=True):
    """Instances of one size."""

    name: str
    memory: _Amount
    """MiB."""
    count: _Amount


class Geometry(Struct, frozen=True):
    """Instances into which a card can be cut."""

    group: str
    profiles: tuple[Profile, ...] = field(name="geometries")


class ModelGeometries(Struct, frozen=True, rename="camel"):
    """The geometries of some models, in order of preference."""

    models: tuple[str, ...]
    allowed_geometries: tuple[Geometry, ...]


class MigInstance(NamedTuple):
    """An instance of a card."""

    place: Place
    memory: int


def read_geometries(stated: Any) -> tuple[ModelGeometries, ...]:  # noqa: ANN401 - free YAML
    """Return the geometries that are stated. Raises `BadArgument`."""
    try:
        found = msgspec.convert(stated or [], tuple[ModelGeometries, ...])
    except msgspec.ValidationError as error:
        raise BadArgument(f"{ARGUMENT}: {error}") from error
    for geometry in (each for models in found for each in models.allowed_geometries):
        if not geometry.group or set(geometry.group) & set("-[],:;"):
            raise BadArgument(f"{ARGUMENT}: group {geometry.group!r} is empty or has one of -[],:;")
    return found


def geometries_of(table: Sequence[ModelGeometries], kind: str) -> tuple[Geometry, ...]:
    """Return the geometries of a card by its type; none if its model is not known."""
    for each in table:
        if any(model in kind for model in each.models):
            return each.allowed_geometries
    return ()


def free_instance(
    geometries: Sequence[Geometry], used: Collection[Place], memory: int
) -> MigInstance | None:
    """Return the smallest free instance with so much memory, of the first geometry that has one.

    If instances are in use, their geometry is the only one.
    """
    groups = {group for group, _ in used}
    for geometry in geometries:
        if groups and geometry.group not in groups:
            continue
        free = [each for each in instances(geometry) if each.place not in used]
        fitting = [each for each in free if each.memory >= memory]
        if fitting:
            return min(fitting, key=lambda each: (each.memory, each.place[1]))
    return None


def instances(geometry: Geometry) -> list[MigInstance]:
    """Return the instances of a geometry by their positions."""
    memories = [each.memory for each in geometry.profiles for _ in range(each.count)]
    return [MigInstance((geometry.group, at), memory) for at, memory in enumerate(memories)]


def memory_of(geometries: Sequence[Geometry], used: Collection[Place]) -> int:
    """Return the memory of the instances that are in use."""
    every = [each for geometry in geometries for each in instances(geometry)]
    return sum(each.memory for each in every if each.place in used)
