"""Arguments of job plugins: flags in Go's style (`--port=22`, `-port 22`, `--x`).

A flag that a plugin does not know has no effect, as in Volcano, whose jobs carry such flags;
`unknown` names them, so that the author of a job learns of a misspelt one. A value that cannot be
read is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from shared.model.numbers import parse_bool, whole

_PORT_MAX: Final = 65_535


class BadPluginArgument(ValueError):  # noqa: N818 - reads as the fact it states
    """The value of an argument cannot be read, or is missing."""


class PortDefault(int):
    """The default of a flag whose value is a port (1 to 65535); any other int is above 0."""

    __slots__ = ()


Value = bool | int | str
"""Of a flag; the type of its default says which."""


def parse(arguments: Sequence[str], defaults: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values of all flags in `defaults`; raises `BadArgument`.

    A flag whose default is a bool may stand alone; any other takes the next word when it has no
    `=`.
    """
    return _read(arguments, defaults)[0]


def unknown(arguments: Sequence[str], defaults: Mapping[str, Value]) -> Sequence[str]:
    """Return the words that are neither flags in `defaults` nor their values; may raise, too."""
    return _read(arguments, defaults)[1]


def _read(
    arguments: Sequence[str], defaults: Mapping[str, Value]
) -> tuple[dict[str, Value], Sequence[str]]:
    values: dict[str, Value] = {
        name: int(default) if isinstance(default, PortDefault) else default
        for name, default in defaults.items()
    }
    words, strange = list(arguments), []
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in defaults:
            strange.append(word)
        elif isinstance(defaults[name], bool):
            values[name] = _boolean(name, value) if equals else True
        elif equals:
            values[name] = _typed(name, value, defaults[name])
        elif words:
            values[name] = _typed(name, words.pop(0), defaults[name])
        else:
            raise BadPluginArgument(f"--{name} needs a value")
    return values, strange


def _boolean(name: str, text: str) -> bool:
    truth = parse_bool(text)
    if truth is None:
        raise BadPluginArgument(f"--{name}={text} is neither true nor false")
    return truth


def _typed(name: str, text: str, default: Value) -> Value:
    if not isinstance(default, int):
        return text
    number = whole(text) or 0
    if number < 1:
        raise BadPluginArgument(f"--{name}={text} is no whole number above 0")
    if isinstance(default, PortDefault) and number > _PORT_MAX:
        raise BadPluginArgument(f"--{name}={text} is no port, {_PORT_MAX} at most")
    return number
