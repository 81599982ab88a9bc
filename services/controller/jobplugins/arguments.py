"""Arguments of job plugins: flags in Go's style (`--port=22`, `-port 22`, `--x`)."""

from collections.abc import Mapping, Sequence

TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class BadArgument(ValueError):  # noqa: N818 - reads as the fact it states
    """An argument that the plugin does not know or cannot read."""


def parse(arguments: Sequence[str], defaults: Mapping[str, bool | str]) -> dict[str, bool | str]:
    """Return the values of all flags in `defaults`; raises `BadArgument`.

    A flag whose default is a bool may stand alone; any other takes the next word when it has no
    `=`.
    """
    values = dict(defaults)
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in defaults:
            raise BadArgument(f"{word!r} is none of {', '.join(f'--{n}' for n in defaults)}")
        if isinstance(defaults[name], bool):
            values[name] = _truth(name, value) if equals else True
        elif equals:
            values[name] = value
        elif words:
            values[name] = words.pop(0)
        else:
            raise BadArgument(f"--{name} needs a value")
    return values


def _truth(name: str, text: str) -> bool:
    if text in TRUE or text in FALSE:
        return text in TRUE
    raise BadArgument(f"--{name}={text} is neither true nor false")
