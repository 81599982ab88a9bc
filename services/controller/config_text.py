"""Shared decoding, and its error, of configurations as YAML in a ConfigMap."""

import re
from typing import Final, TypeVar

import msgspec
import yaml

from shared.api.base import DNS_SUBDOMAIN, NAME_MAX
from shared.model import durations

_F = TypeVar("_F")
_OBJECT: Final = re.compile(DNS_SUBDOMAIN)


class BadConfigError(ValueError):
    """The configuration cannot be used; the text names the field."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the types of a file; unknown fields are ignored."""


def decoded(text: str, key: str, form: type[_F]) -> _F:
    """Return the content of the file `key`; an empty one has the defaults of its form.

    Raises BadConfigError.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadConfigError(f"{key} is no YAML: {error}") from error
    return converted(plain if plain is not None else {}, key, form)


def converted(plain: object, path: str, form: type[_F]) -> _F:
    """Return plain values in their form; `path` begins what BadConfigError says."""
    try:
        return msgspec.convert(plain, form)
    except msgspec.ValidationError as error:
        raise BadConfigError(f"{path}: {error}") from error


def seconds(text: str, path: str) -> float:
    """Return the seconds of a duration, 0.0 for an empty one. Raises BadConfigError."""
    try:
        return durations.seconds(text)
    except ValueError as error:
        raise BadConfigError(f"{path}: {error}") from error


def is_object_name(text: str) -> bool:
    """Tell whether an object of the cluster can have this name."""
    return len(text) <= NAME_MAX and _OBJECT.fullmatch(text) is not None
