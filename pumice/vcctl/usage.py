"""Help pages of commands in the layout of Go's Cobra. Pure; called by `tree`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pumice.vcctl.flags import STRING, Flag, quoted

if TYPE_CHECKING:
    from pumice.vcctl.tree import Command, Path

_LEAST: Final = 11
"""Width of the names of commands, also where all are shorter."""


def page(path: "Path", own: Sequence[Flag], inherited: Sequence[Flag]) -> str:
    """Return the whole help: what the command does, and how it is used."""
    about = path[-1].long or path[-1].short
    return (f"{about}\n\n" if about else "") + lines(path, own, inherited)


def lines(path: "Path", own: Sequence[Flag], inherited: Sequence[Flag]) -> str:
    """Return how a command is used: line, examples, commands, flags."""
    command, called = path[-1], " ".join(each.name for each in path)
    parts = [_line_of_use(command, called)]
    if command.example:
        parts.append(f"Examples:\n{command.example}\n")
    if command.children:
        parts.append(f"Available Commands:\n{_commands(command)}")
    if own:
        parts.append(f"Flags:\n{_flags(own)}")
    if inherited:
        parts.append(f"Global Flags:\n{_flags(inherited)}")
    if command.children:
        parts.append(f'Use "{called} [command] --help" for more information about a command.\n')
    return "\n".join(parts)


def _line_of_use(command: "Command", called: str) -> str:
    shown = [f"  {called} [command]\n"] if command.children else []
    if command.action:
        words = " ".join(filter(None, (called, command.use, "[flags]")))
        shown.insert(0, f"  {words}\n")
    return "Usage:\n" + "".join(shown)


def _commands(command: "Command") -> str:
    width = max(_LEAST, *(len(child.name) for child in command.children))
    children = sorted(command.children, key=lambda child: child.name)
    return "".join(f"  {child.name:<{width}} {child.short}\n" for child in children)


def _flags(flags: Sequence[Flag]) -> str:
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
