"""Configurations that stand as YAML in a ConfigMap: the error and the decoding that all share."""

from typing import TypeVar

import msgspec
import yaml

_F = TypeVar("_F")


class BadConfigError(ValueError):
    """The configuration cannot be used; the text names the field."""


def decoded(text: str, key: str, form: type[_F]) -> _F:
    """Return the content of the file `key`; an empty one has the defaults of its form.

    Raises BadConfigError.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadConfigError(f"{key} is no YAML: {error}") from error
    try:
        return msgspec.convert(plain if plain is not None else {}, form)
    except msgspec.ValidationError as error:
        raise BadConfigError(f"{key}: {error}") from error
