"""Print a script that completes `pumice` in a shell: commands, flags, and names from the cluster.

bash: `source <(pumice completion bash)`; zsh: `source <(pumice completion zsh)` after `compinit`;
fish: `pumice completion fish | source`. Put the line into the shell's own start file.
"""

import argparse
import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

import msgspec

from pumice.local.errors import LocalError

Parser = Callable[[str], argparse.ArgumentParser]
Ask = Callable[["argparse.Namespace", str], Coroutine[Any, Any, list[str]]]

_ANSWER_S: Final = 3.0
_TARGET_FLAGS: Final = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--kubeconfig": "kubeconfig",
    "--context": "context",
}


_NAMESPACE: Final = "namespace"
_TIMELINE: Final = "life"
_NAMED: Final = {
    "namespace": _NAMESPACE,
    "drain": "node",
    "like": "node",
    "change_queue": "queue",
}
"""Destination of a flag → what its values name."""
_LISTS: Final = {
    "job": ("pendingjobs",),
    _TIMELINE: ("pendingjobs", "runningjobs"),
    _NAMESPACE: ("pendingjobs", "runningjobs"),
    "queue": ("queuetrees",),
    "node": ("nodeuses",),
}
"""Kind of name → lists that hold such names; namespaces are those of jobs that wait or run."""


class _Item(msgspec.Struct, frozen=True):
    metadata: dict[str, object]


class _Names(msgspec.Struct, frozen=True):
    items: list[_Item]


def candidates(
    words: Sequence[str], commands: Sequence[str], parser: Parser, ask: Ask | None = None
) -> list[str]:
    """Return the completions of the last word: commands, flags, and names of objects.

    `pumice __complete WORD...` prints them for the scripts below. There are none where it is not
    known what may follow: the shell then offers files.
    """
    last = words[-1] if words else ""
    if len(words) < 2:  # noqa: PLR2004 - the command itself
        return _beginning(commands, last)
    if words[0] not in commands:
        return []
    own, rest = parser(words[0]), list(words[1:-1])
    while rest and (inner := _subparsers(own)):
        own = inner.get(rest.pop(0), own)
    before = words[-2]
    action = next((a for a in own._actions if before in a.option_strings), None)  # noqa: SLF001
    if action is not None and action.nargs != 0:
        named = _NAMED.get(action.dest)
        values = _object_names(words, named, ask or names) if named else action.choices or ()
        return _beginning(map(str, values), last)
    if last.startswith("-"):
        flags = [flag for a in own._actions for flag in a.option_strings]  # noqa: SLF001
        return _beginning((flag for flag in flags if flag.startswith("--")), last)
    return _beginning(_values(own, words, rest, ask or names), last)


def _values(
    own: argparse.ArgumentParser, words: Sequence[str], rest: Sequence[str], ask: Ask
) -> list[str]:
    """Return the values of the first argument that is no flag."""
    if inner := _subparsers(own):
        return list(inner)
    positional = [a for a in own._actions if not a.option_strings]  # noqa: SLF001
    if not positional or any(not word.startswith("-") for word in _without_values(own, rest)):
        return []
    first = positional[0]
    if first.choices:
        return [str(choice) for choice in first.choices]
    if first.dest not in {"job", "queue"}:
        return []
    return _object_names(words, _TIMELINE if words[0] == "timeline" else first.dest, ask)


def _object_names(words: Sequence[str], kind: str, ask: Ask) -> list[str]:
    """Return names of objects in the cluster; none if it cannot be reached."""
    place = _flags_among(words)
    if kind in {"job", _TIMELINE} and "/" in words[-1]:
        place.namespace, place.prefix = words[-1].split("/", 1)[0], True
    try:
        return asyncio.run(ask(place, kind))
    except (LocalError, TimeoutError, OSError):
        return []


def _without_values(own: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return words without those that are the value of a flag."""
    taking = {f for a in own._actions for f in a.option_strings if a.nargs != 0}  # noqa: SLF001
    pairs = itertools.pairwise(["", *words])
    return [word for before, word in pairs if before not in taking]


def _subparsers(parser: argparse.ArgumentParser) -> "dict[str, argparse.ArgumentParser]":
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _flags_among(words: Sequence[str]) -> argparse.Namespace:
    """Return the flags for cluster and namespace in a command line that may be incomplete."""
    found = argparse.Namespace(namespace="", kubeconfig="", context=None, prefix=False)
    for flag, value in itertools.pairwise(words):
        if flag in _TARGET_FLAGS:
            setattr(found, _TARGET_FLAGS[flag], value)
    found.all_namespaces = bool({"-A", "--all-namespaces"} & set(words))
    found.prefix = found.all_namespaces
    return found


def _beginning(words: Iterable[str], start: str) -> list[str]:
    return [word for word in words if word.startswith(start)]


async def names(args: argparse.Namespace, kind: str) -> list[str]:
    """Return names of a row of `_LISTS`. Silent when the cluster cannot say.

    A job's name has its namespace before it if `args.prefix`.
    """
    from pumice.queries.client import QueryClient, QueryError
    from pumice.queries.output import target_of

    try:
        async with asyncio.timeout(_ANSWER_S):
            client = await QueryClient.open(target_of(args))
            try:
                raws = [await client.get(path) for path in _paths(client.namespace, kind)]
            finally:
                await client.close()
    except QueryError:
        return []
    keys = ("namespace", "name") if args.prefix and kind in {"job", _TIMELINE} else ("name",)
    keys = ("namespace",) if kind == _NAMESPACE else keys
    items = [item for raw in raws for item in msgspec.json.decode(raw, type=_Names).items]
    return list(dict.fromkeys("/".join(str(each.metadata[k]) for k in keys) for each in items))


def _paths(namespace: str, kind: str) -> list[str]:
    """Return the lists that hold the names of a kind."""
    from pumice.queries.client import collection

    is_of_namespace = kind in {"job", _TIMELINE}
    return [collection(each, namespace if is_of_namespace else "") for each in _LISTS[kind]]


_SCRIPTS: Final = {
    "bash": """\
_pumice() {
    local IFS=$'\\n'
    COMPREPLY=($(pumice __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _pumice pumice
""",
    "zsh": """\
#compdef pumice
_pumice() {
    local -a found
    found=(${(f)"$(pumice __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _pumice pumice
""",
    "fish": """\
function __pumice_complete
    set -l words (commandline -opc) (commandline -ct)
    pumice __complete $words[2..-1] 2>/dev/null
end
complete -c pumice -f -a '(__pumice_complete)'
complete -c pumice -n '__fish_seen_argument -s f -l filename' -F
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's argument."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS))


async def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[args.shell], end="")
    return 0
