"""Finds the command and runs it; each refusal is one line `error: …` on stderr.

A command is a module with `add_arguments(parser)` and `async run(args) -> exit code`. It is
imported only when it is called: `pumice --help` does not wait for the demo's modules, and
`pumice events` works where the services are not installed (ADR 21). Exit codes: 0 done, 1 the
command failed, 2 wrong usage or settings, 130 interrupted.
"""

import argparse
import asyncio
import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol, cast

import msgspec
from typing_extensions import override

from pumice.cli.program import called_as, silence_stdout
from pumice.local.errors import LocalError, WrongSettingError

INTERRUPTED: Final = 130
_WRONG_USAGE: Final = 2
_COMPLETE: Final = "__complete"
"""The command that scripts of `completion` call; no person does."""


class CommandEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its line of the help page and its module."""

    module: str
    help: str
    passes_on: bool = False
    """Whether arguments that the command does not know are given to it as `args.rest`."""
    extra: str = "local"
    """The extra of this distribution that brings the modules which the command imports."""


COMMANDS: Final = {
    "up": CommandEntry(
        module="pumice.cli.up", help="start a local cluster and the services", passes_on=True
    ),
    "status": CommandEntry(module="pumice.cli.status", help="show what runs in the local cluster"),
    "down": CommandEntry(module="pumice.cli.down", help="stop the local cluster"),
    "run": CommandEntry(
        module="pumice.cli.run",
        help="run the services against an existing cluster",
        passes_on=True,
        extra="services",
    ),
    "events": CommandEntry(
        module="pumice.cli.events", help="print scheduling events, as they come", extra="webhook"
    ),
    "trace": CommandEntry(
        module="pumice.cli.trace",
        help="print one job's life as a tree, with durations and reasons",
        extra="services",
    ),
    "web": CommandEntry(
        module="pumice.cli.web",
        help="open a live page: queues, jobs, nodes, what-ifs",
        extra="services",
    ),
    "why": CommandEntry(module="pumice.cli.why", help="tell why a job waits", extra="services"),
    "when": CommandEntry(
        module="pumice.cli.when", help="tell when a job is expected to start", extra="services"
    ),
    "what-if": CommandEntry(
        module="pumice.cli.what_if",
        help="tell what would happen: with a job, another queue, other nodes",
        extra="services",
    ),
    "defrag": CommandEntry(
        module="pumice.cli.defrag",
        help="show which moves of pods let waiting jobs start, or make them",
        extra="services",
    ),
    "replay-week": CommandEntry(
        module="pumice.cli.replay_week",
        help="replay recorded jobs with another configuration",
        extra="services",
    ),
    "report": CommandEntry(
        module="pumice.cli.report",
        help="report usage, jobs, waits and efficiency",
        extra="services",
    ),
    "history": CommandEntry(
        module="pumice.cli.history", help="show jobs that ran or waited", extra="services"
    ),
    "sacct": CommandEntry(
        module="pumice.cli.sacct", help="show jobs as Slurm does", extra="services"
    ),
    "sreport": CommandEntry(
        module="pumice.cli.sreport", help="report usage as Slurm does", extra="services"
    ),
    "sshare": CommandEntry(
        module="pumice.cli.sshare", help="show shares as Slurm does", extra="services"
    ),
    "queue": CommandEntry(
        module="pumice.cli.queue", help="show the tree of queues, or one's line", extra="services"
    ),
    "timeline": CommandEntry(
        module="pumice.cli.timeline", help="print what happened to a job", extra="services"
    ),
    "top": CommandEntry(
        module="pumice.cli.top", help="show queues, gangs and nodes, live", extra="services"
    ),
    "demo": CommandEntry(module="pumice.cli.demo", help="a cluster for a minute, and gangs on it"),
    "completion": CommandEntry(
        module="pumice.cli.completion", help="print a script that completes commands in a shell"
    ),
    "parts": CommandEntry(
        module="pumice.cli.parts", help="find or build the programs that `up` needs"
    ),
}


class CommandModule(Protocol):
    """The functions of a command's module."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    async def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [_COMPLETE]:
        return _complete(words[1:])
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_help())
        return 0 if words else _WRONG_USAGE
    if words[0] == "--version":
        from importlib import metadata  # with the parser of mails; no command needs it

        print(f"pumice {metadata.version('pumice')}")
        return 0
    entry = COMMANDS.get(words[0])
    if entry is None:
        near = difflib.get_close_matches(words[0], COMMANDS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return _refuse(f"there is no command {words[0]!r}{hint}; see `pumice --help`")
    return _run(words[0], entry, words[1:])


def kubectl_complete() -> int:
    """Complete `kubectl pumice`: kubectl runs this and reads the directive of the last line."""
    _complete(sys.argv[1:])
    print(":4")
    return 0


def _complete(words: list[str]) -> int:
    """Print the completions of a command line; print nothing on an error."""
    from pumice.cli.completion import candidates

    def parser(name: str) -> argparse.ArgumentParser:
        return _parser(name, cast("CommandModule", importlib.import_module(COMMANDS[name].module)))

    try:
        print("\n".join(candidates(words, tuple(COMMANDS), parser)))
    except ModuleNotFoundError:
        return 1
    return 0


def _run(name: str, entry: CommandEntry, words: list[str]) -> int:
    """Import and run a command; an interrupt ends either without a traceback."""
    try:
        code = _run_command(name, entry, words)
        sys.stdout.flush()
    except BrokenPipeError:
        return silence_stdout()
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if missing.partition(".")[0] == "pumice":
            raise  # all of `pumice` is one distribution: this is a bug
        install = f"pip install 'pumice[{entry.extra}]'"
        return _refuse(f"pumice {name} needs {missing}, which is not installed: {install}", code=1)
    except _errors(LocalError, "PumiceError") as error:
        wrong = isinstance(error, _errors(WrongSettingError, "Rejected"))
        return _refuse(str(error), code=_WRONG_USAGE if wrong else 1)
    return code


def _errors(own: type[LocalError], of_services: str) -> tuple[type[Exception], ...]:
    """Return an error of this distribution and, if the services are loaded, theirs of that name."""
    loaded = sys.modules.get("shared.runtime.errors")
    return (own, getattr(loaded, of_services)) if loaded else (own,)


class _Parser(argparse.ArgumentParser):
    """Refuses a line that cannot be read as all else is refused: in one line, without the usage."""

    @override
    def error(self, message: str) -> NoReturn:
        """End the process with a hint at the help of the command."""
        self.exit(_WRONG_USAGE, f"error: {self.prog}: {message}; see `{self.prog} --help`\n")


def _run_command(name: str, entry: CommandEntry, words: list[str]) -> int:
    command = cast("CommandModule", importlib.import_module(entry.module))
    parser = _parser(name, command)
    args, rest = parser.parse_known_args(words)
    args.rest, args.own = rest, _flags(parser)
    if rest and not entry.passes_on:
        return _refuse(f"{parser.prog}: {_unknown(rest[0], args.own)}; see `{parser.prog} --help`")
    return asyncio.run(command.run(args))


def _parser(name: str, command: CommandModule) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"{called_as()} {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long flags of a command, without dashes."""
    words = (word for action in parser._actions for word in action.option_strings)  # noqa: SLF001
    return [word.removeprefix("--") for word in words if word.startswith("--")]


def _unknown(word: str, flags: Sequence[str]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}"
    flag = word.lstrip("-").partition("=")[0]
    near = difflib.get_close_matches(flag, flags, n=1)
    return f"there is no flag {word}{f' (did you mean --{near[0]}?)' if near else ''}"


def _refuse(message: str, *, code: int = _WRONG_USAGE) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {entry.help}" for name, entry in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {called_as()} COMMAND [...]",
            "",
            "A batch scheduling system for Kubernetes, wire-compatible with Volcano.",
            "",
            "commands:",
            *lines,
            "",
            f"`{called_as()} COMMAND --help` tells more about one of them.",
        ]
    )
