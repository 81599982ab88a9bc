"""Flags as Go's programs read them: kinds of values, `-f x`, `-fx`, `--flag=x`, groups `-hn x`.

Pure. `tree` asks it for the flags of one command. The messages are those that Volcano's users see.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple


class CommandFailure(Exception):  # noqa: N818 - it is shown behind "Failed to"
    """The text ends the line that begins with `Failed to …`."""


Value = str | int | bool

_DIGITS: Final = {"0x": 16, "0b": 2, "0o": 8}
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\t": r"\t", "\r": r"\r"}


class FlagError(Exception):
    """A line of arguments that cannot be read; the text is for the person who wrote it."""


class FlagKind(NamedTuple):
    """How the value of a flag is named in the help, read, and shown when it is the default."""

    word: str
    read: Callable[[str], Value]
    zero: Value
    bare: str = ""
    """The value of the flag when it is given without one; empty: it needs one."""


class Flag(NamedTuple):
    """One flag of a command."""

    name: str
    kind: FlagKind
    usage: str
    short: str = ""
    default: Value | None = None
    """None: the zero of its kind, which the help does not show."""
    shown: str = ""
    """A default that the help shows, for a flag whose command finds out what holds without it."""

    @property
    def value(self) -> Value:
        """Return the value of the flag when it is not given."""
        return self.kind.zero if self.default is None else self.default

    @property
    def title(self) -> str:
        """Return the flag as its errors name it."""
        return f"-{self.short}, --{self.name}" if self.short else f"--{self.name}"


class Read(NamedTuple):
    """A parsed command line: a value for each flag, and the other arguments."""

    values: dict[str, Value]
    words: list[str]


def quoted(text: str) -> str:
    """Return a text in double quotes with Go's escapes."""
    return '"' + "".join(_ESCAPES.get(sign) or _shown(sign) for sign in text) + '"'


def _shown(sign: str) -> str:
    if sign.isprintable():
        return sign
    return f"\\x{ord(sign):02x}" if sign.isascii() else f"\\u{ord(sign):04x}"


def named(flags: Sequence[Flag], name: str) -> Flag | None:
    """Return the flag of a long name; underscores in it count as dashes."""
    flag_name = name.replace("_", "-")
    return next((flag for flag in flags if flag.name == flag_name), None)


def lettered(flags: Sequence[Flag], letter: str) -> Flag | None:
    """Return the flag of a letter."""
    return next((flag for flag in flags if flag.short and flag.short == letter), None)


def read(flags: Sequence[Flag], line: Sequence[str]) -> Read:
    """Read a command's arguments. Raises FlagError at the first that is wrong."""
    done = Read({flag.name: flag.value for flag in flags}, [])
    rest = list(line)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            done.words.extend(rest)
            break
        if not argument.startswith("-") or argument == "-":
            done.words.append(argument)
        elif argument.startswith("--"):
            _long(flags, argument, rest, done.values)
        else:
            _letters(flags, argument, rest, done.values)
    return done


def _long(flags: Sequence[Flag], argument: str, rest: list[str], values: dict[str, Value]) -> None:
    name, equals, text = argument[2:].partition("=")
    if not name or name.startswith("-"):
        raise FlagError(f"bad flag syntax: {argument}")
    flag = named(flags, name)
    if flag is None:
        raise FlagError(f"unknown flag: --{name}")
    if not equals:
        if flag.kind.bare:
            text = flag.kind.bare
        elif rest:
            text = rest.pop(0)
        else:
            raise FlagError(f"flag needs an argument: --{name}")
    values[flag.name] = _value(flag, text)


def _letters(
    flags: Sequence[Flag], argument: str, rest: list[str], values: dict[str, Value]
) -> None:
    """Read grouped short flags: the first that takes a value takes the rest of the argument."""
    group = argument[1:]
    while group:
        flag = lettered(flags, group[0])
        if flag is None:
            raise FlagError(f"unknown shorthand flag: '{group[0]}' in -{group}")
        if len(group) > 2 and group[1] == "=":  # noqa: PLR2004 - the letter and its sign
            text, group = group[2:], ""
        elif flag.kind.bare:
            text, group = flag.kind.bare, group[1:]
        elif len(group) > 1:
            text, group = group[1:], ""
        elif rest:
            text, group = rest.pop(0), ""
        else:
            raise FlagError(f"flag needs an argument: '{group[0]}' in -{group}")
        values[flag.name] = _value(flag, text)


def _value(flag: Flag, text: str) -> Value:
    try:
        return flag.kind.read(text)
    except FlagError as error:
        reason = f"invalid argument {quoted(text)} for {quoted(flag.title)} flag: {error}"
        raise FlagError(reason) from None


def _boolean(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise FlagError(f"strconv.ParseBool: parsing {quoted(text)}: invalid syntax")


def _integer(bits: int, *, prefixes: bool = True) -> Callable[[str], int]:
    """Return the reader of a whole number that fits into so many bits."""

    def convert(text: str) -> int:
        try:
            number = _number(text) if prefixes else int(text if text.isascii() else "")
        except ValueError:
            reason = f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax"
            raise FlagError(reason) from None
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise FlagError(f"strconv.ParseInt: parsing {quoted(text)}: value out of range")
        return number

    return convert


def _number(text: str) -> int:
    """Return a number in one of Go's notations. Raises ValueError."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
    if not digits.isascii() or digits[:1] in {"+", "-"} or digits.strip() != digits:
        raise ValueError(text)
    base = _DIGITS.get(digits[:2].lower())
    if base is None and len(digits) > 1 and digits[0] == "0":
        return int(f"{sign}{digits[1:].removeprefix('_')}", 8)
    return int(f"{sign}{digits}", base or 10)


def _duration(text: str) -> str:
    from shared.model import durations

    if durations.parse(text) is None:
        raise FlagError("parse error")
    return text


def _modules(text: str) -> str:
    for part in filter(None, text.split(",")):
        pattern, equals, level = part.partition("=")
        if not pattern or not equals or not level.isdecimal():
            raise FlagError("syntax error: expect comma-separated list of filename=N")
    return text


STRING: Final = FlagKind("string", str, "")
BOOL: Final = FlagKind("", _boolean, False, bare="true")  # noqa: FBT003 - the zero of a bool
INT: Final = FlagKind("int", _integer(64), 0)
INT32: Final = FlagKind("int32", _integer(32), 0)
DURATION: Final = FlagKind("duration", _duration, "")
LEVEL: Final = FlagKind("Level", _integer(32, prefixes=False), 0)
MODULES: Final = FlagKind("moduleSpec", _modules, "")


def text(values: Mapping[str, Value], name: str) -> str:
    """Return the value of a flag that is a text."""
    return str(values[name])


def number(values: Mapping[str, Value], name: str) -> int:
    """Return the value of a flag that is a number."""
    return int(values[name])
