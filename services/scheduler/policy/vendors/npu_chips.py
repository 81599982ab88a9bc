"""Kinds of Ascend NPUs and the templates by which their device plugin of HAMi cuts them (DV3).

The table of a cluster is in the arguments of `deviceshare`, in the words of the device plugin's
own configuration (`vnpus` of `device-config.yaml`); without one the chips are those that the device
plugin comes with.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field

from services.scheduler.policy.arguments import BadArgument

HUAWEI: Final = "huawei.com/"
FAMILY: Final = "Ascend"
"""Prefix of every chip's name."""
MEMORY_SUFFIX: Final = "-memory"
CORES_SUFFIX: Final = "-core"
ARGUMENT: Final = "deviceshare.VNPUs"

_Amount = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Template(Struct, frozen=True):
    """A part into which a chip can be cut."""

    name: str
    memory: _Amount


class Chip(Struct, frozen=True, rename="camel"):
    """A kind of NPU, as the device plugin's configuration describes it."""

    common_word: str
    memory_allocatable: _Amount
    """Memory of a whole one, in MiB."""
    memory_capacity: _Amount
    templates: tuple[Template, ...] = ()
    resource_name: str = ""
    resource_memory_name: str = ""

    def rounded(self, memory: int) -> tuple[int, str] | None:
        """Return memory and name of the least template that suffices.

        A whole chip has no name. None: the request is more than a chip has.
        """
        for template in sorted(self.templates, key=lambda each: each.memory):
            if memory <= template.memory:
                return template.memory, template.name
        return (self.memory_allocatable, "") if memory <= self.memory_capacity else None


class ChipTable(Struct, frozen=True):
    """The chips of a cluster by their words."""

    chips: tuple[Chip, ...]
    sliced: bool = False
    """Whether nodes slice their cards by software, unless they say otherwise."""

    def chip(self, chip_name: str) -> Chip | None:
        """Return a kind of chip, None if the table has none of the name."""
        return next((chip for chip in self.chips if chip.common_word == chip_name), None)


class _Stated(Struct, rename="camel"):
    configs: tuple[Chip, ...] = ()
    hami_vnpu_core: bool = field(default=False)


def _chip(chip_name: str, allocatable: int, *templates: tuple[str, int], capacity: int = 0) -> Chip:
    parts = tuple(Template(name, memory) for name, memory in templates)
    return Chip(chip_name, allocatable, capacity or allocatable, parts)


_QUARTERS: Final = (("vir05_1c_16g", 16384), ("vir10_3c_32g", 32768))
KNOWN: Final = ChipTable(
    (
        _chip("Ascend310P", 21527, ("vir01", 3072), ("vir02", 6144), ("vir04", 12288),
              capacity=24576),
        _chip("Ascend910A", 32768, ("vir02", 2184), ("vir04", 4369), ("vir08", 8738),
              ("vir16", 17476)),
        _chip("Ascend910B2", 65536, ("vir03_1c_8g", 8192), ("vir06_1c_16g", 16384),
              ("vir12_3c_32g", 32768)),
        _chip("Ascend910B3", 65536, *_QUARTERS),
        _chip("Ascend910B4", 32768, ("vir05_1c_8g", 8192), ("vir10_3c_16g", 16384)),
        _chip("Ascend910B4-1", 65536, *_QUARTERS),
        _chip("Ascend910C", 65536, *_QUARTERS),
    )
)  # fmt: skip
"""Words, memory and templates that HAMi's ascend-device-plugin registers and cuts by."""


def read_table(stated: Any) -> ChipTable:  # noqa: ANN401 - free YAML
    """Return the table that is stated, `KNOWN` without one. Raises `BadArgument`."""
    if stated is None or stated == "":
        return KNOWN
    try:
        whole = {"configs": stated} if isinstance(stated, list) else stated
        found = msgspec.convert(whole, _Stated)
    except msgspec.ValidationError as error:
        raise BadArgument(f"{ARGUMENT}: {error}") from error
    _check(found.configs)
    return ChipTable(found.configs, found.hami_vnpu_core)


def _check(chips: Sequence[Chip]) -> None:
    """Refuse chips whose resources the scheduler would not know by their names."""
    words = [chip.common_word for chip in chips]
    for chip in chips:
        chip_name, resource = chip.common_word, f"{HUAWEI}{chip.common_word}"
        if not chip_name.startswith(FAMILY) or words.count(chip_name) > 1:
            raise BadArgument(
                f"{ARGUMENT}: commonWord {chip_name!r} does not begin with {FAMILY}, "
                "or stands twice"
            )
        if chip_name.endswith((MEMORY_SUFFIX, CORES_SUFFIX)):
            raise BadArgument(
                f"{ARGUMENT}: commonWord {chip_name!r} reads as memory or cores of another"
            )
        names = (chip.resource_name, chip.resource_memory_name)
        for name, known in zip(names, (resource, resource + MEMORY_SUFFIX), strict=True):
            if name not in {"", known}:
                raise BadArgument(
                    f"{ARGUMENT}: the resource {name!r} of {chip_name} is not {known}"
                )
