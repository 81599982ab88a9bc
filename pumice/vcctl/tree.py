"""A tree of commands in the manner of Go's Cobra: finds one, reads its flags, prints its help.

Pure but for the action of the command that was found, which `main` carries out. `commands` is the
table that this module goes by.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pumice.vcctl.flags import BOOL, STRING, Flag, FlagError, Value, lettered, named, quoted, read

_LEAST: Final = 11
"""Width of the names of commands, also where all are shorter."""
_NEAR: Final = 2
"""Letters that may be wrong in a command that is suggested."""


class VcctlCommand(NamedTuple):
    """One command, or a group of them."""

    name: str
    short: str = ""
    long: str = ""
    example: str = ""
    use: str = ""
    """The arguments that the line of use shows, beside flags."""
    flags: tuple[Flag, ...] = ()
    shared: tuple[Flag, ...] = ()
    """Flags that all commands below have too."""
    children: "tuple[VcctlCommand, ...]" = ()
    action: str = ""
    """`module:function` of what it does; empty for a group."""


Path = tuple[VcctlCommand, ...]
"""A command behind the groups that it is in, the program first."""


class LineResult(NamedTuple):
    """How a line ends: texts and an exit code, or a command to carry out with its values."""

    code: int = 0
    out: str = ""
    err: str = ""
    path: Path = ()
    values: Mapping[str, Value] = {}


def run(program: VcctlCommand, line: Sequence[str]) -> LineResult:
    """Return the command and flags of a command line."""
    program = _with_help(program)
    path, rest = _find((program,), list(line))
    words = _plain(path, rest)
    if len(path) == 1 and program.children and words:
        return LineResult(1, err=f"Error: {_unknown(program, words[0])}\n")
    return _execute(path, rest)


def flags_of(path: Path) -> tuple[list[Flag], list[Flag]]:
    """Return the flags of a command: its own with `--help`, and those of the groups above."""
    own = [*path[-1].flags, *path[-1].shared, _help_flag(path[-1].name)]
    return own, [flag for group in path[:-1] for flag in group.shared]


def help_of(path: Path) -> str:
    """Return the help of a command."""
    about = path[-1].long or path[-1].short
    return (f"{about}\n\n" if about else "") + usage_lines(path, *flags_of(path))


def _execute(path: Path, rest: Sequence[str]) -> LineResult:
    own, inherited = flags_of(path)
    try:
        values, words = read([*own, *inherited], rest)
    except FlagError as error:
        shown = usage_lines(path, own, inherited) + "\n" if len(path) == 1 else ""
        return LineResult(1, err=f"{shown}Error: {error}\n")
    if values["help"] or not path[-1].action:
        return LineResult(out=help_of(path))
    if path[-1].action == "help":
        return _topic(path[:1], words)
    return LineResult(path=path, values=values)


def _topic(root: Path, words: Sequence[str]) -> LineResult:
    """Return the help text of the command named after `help`."""
    path, rest = _find(root, list(words))
    if len(path) == 1 and _plain(path, rest):
        topics = " ".join(f"`{argument}`" for argument in words)
        own = [*path[0].flags, *path[0].shared]
        return LineResult(err=f"Unknown help topic [{topics}]\n{usage_lines(root, own, [])}")
    return LineResult(out=help_of(path))


def _with_help(program: VcctlCommand) -> VcctlCommand:
    """Return a program with the command `help`, if it has commands at all."""
    if not program.children:
        return program
    helps = VcctlCommand(
        "help",
        short="Help about any command",
        long="Help provides help for any command in the application.\n"
        f"Simply type {program.name} help [path to command] for full details.",
        use="[command]",
        action="help",
    )
    return program._replace(children=(*program.children, helps))


def _help_flag(name: str) -> Flag:
    return Flag("help", BOOL, f"help for {name}", short="h")


def _find(path: Path, line: list[str]) -> tuple[Path, list[str]]:
    """Return the command that a line names, and the line without the names of commands."""
    words = _plain(path, line)
    found = next((c for c in path[-1].children if words and c.name == words[0]), None)
    if found is None:
        return path, line
    at = next(place for place, argument in _places(path, line) if argument == found.name)
    return _find((*path, found), line[:at] + line[at + 1 :])


def _plain(path: Path, line: Sequence[str]) -> list[str]:
    """Return the arguments of a line that are neither flags nor values of flags."""
    return [argument for _, argument in _places(path, line)]


def _places(path: Path, line: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the arguments that are neither flags nor their values, with their positions.

    ⚠ As in Cobra an unknown flag is taken for one with a value, `--help` among them before the
    command is known: `vcctl --help job list` requests the command `list`.
    """
    flags = [flag for command in path for flag in (*command.flags, *command.shared)]
    at = 0
    while at < len(line):
        argument = line[at]
        at += 1
        if argument == "--":
            return
        if _takes_the_next(flags, argument):
            if len(line) - at <= 1:
                return
            at += 1
        elif argument and not argument.startswith("-"):
            yield at - 1, argument


def _takes_the_next(flags: Sequence[Flag], argument: str) -> bool:
    if "=" in argument or not argument.startswith("-"):
        return False
    if argument.startswith("--"):
        flag = named(flags, argument[2:])
    elif len(argument) == 2:  # noqa: PLR2004 - a dash and a letter
        flag = lettered(flags, argument[1])
    else:
        return False
    return flag is None or not flag.kind.bare


def _unknown(program: VcctlCommand, argument: str) -> str:
    """Return the refusal of a command, with those that are spelt nearly so."""
    offered = [c.name for c in program.children if c.action != "help"]
    hint = "".join(f"\t{name}\n" for name in offered if _is_near(argument, name))
    problem = f"unknown command {quoted(argument)} for {quoted(program.name)}"
    return f"{problem}\n\nDid you mean this?\n{hint}" if hint else problem


def _is_near(argument: str, name: str) -> bool:
    return _distance(argument.lower(), name.lower()) <= _NEAR or name.lower().startswith(
        argument.lower()
    )


def _distance(one: str, other: str) -> int:
    """Return the edit distance: letters inserted, deleted or changed between the two words."""
    row = list(range(len(other) + 1))
    for i, sign in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, goal in enumerate(other, 1):
            cheapest = min(row[j] + 1, row[j - 1] + 1, last + (sign != goal))
            last, row[j] = row[j], cheapest
    return row[-1]


def usage_lines(path: Path, own: Sequence[Flag], inherited: Sequence[Flag]) -> str:
    """Return how a command is used: line, examples, commands, flags."""
    command, called = path[-1], " ".join(each.name for each in path)
    parts = [_line_of_use(command, called)]
    if command.example:
        parts.append(f"Examples:\n{command.example}\n")
    if command.children:
        parts.append(f"Available Commands:\n{_command_lines(command)}")
    if own:
        parts.append(f"Flags:\n{_flag_lines(own)}")
    if inherited:
        parts.append(f"Global Flags:\n{_flag_lines(inherited)}")
    if command.children:
        parts.append(f'Use "{called} [command] --help" for more information about a command.\n')
    return "\n".join(parts)


def _line_of_use(command: VcctlCommand, called: str) -> str:
    shown = [f"  {called} [command]\n"] if command.children else []
    if command.action:
        words = " ".join(filter(None, (called, command.use, "[flags]")))
        shown.insert(0, f"  {words}\n")
    return "Usage:\n" + "".join(shown)


def _command_lines(command: VcctlCommand) -> str:
    width = max(_LEAST, *(len(child.name) for child in command.children))
    children = sorted(command.children, key=lambda child: child.name)
    return "".join(f"  {child.name:<{width}} {child.short}\n" for child in children)


def _flag_lines(flags: Sequence[Flag]) -> str:
    heads = {flag.name: _head(flag) for flag in flags}
    width = max(map(len, heads.values())) + 3
    ordered = sorted(flags, key=lambda flag: flag.name)
    return "".join(f"{heads[flag.name]:<{width}}{flag.usage}{_default(flag)}\n" for flag in ordered)


def _head(flag: Flag) -> str:
    letter = f"-{flag.short}, " if flag.short else "    "
    return f"  {letter}--{flag.name} {flag.kind.word}".rstrip()


def _default(flag: Flag) -> str:
    default = flag.shown or flag.default
    if default is None:
        return ""
    shown = quoted(str(default)) if flag.kind is STRING else str(default)
    return f" (default {shown})"
