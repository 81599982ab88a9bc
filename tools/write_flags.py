"""Writes the tables of `docs/configuration.md` from the settings and the catalogue (`make crds`).

What stands between two marks is made here; all other text of the page is written by hand. `render`
is apart so that the test that compares the page calls the very same code.
"""

import ast
import importlib
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pumice.local.names import OPTIONAL, SERVICES
from pumice.local.services import settings_type
from services.scheduler.policy.catalog import ACTIONS, PLUGINS
from shared.jobplugins.catalogue import PLUGINS as JOB_PLUGINS
from shared.jobplugins.interface import JobPlugin
from shared.runtime.settings import Field, fields_of
from shared.runtime.values import Seconds, show_seconds

PAGE: Final = Path(__file__).parent.parent / "docs" / "configuration.md"
_BEHAVIOUR: Final = re.compile(r" \([A-Z]{1,2}\d{1,2}[^)]*\)")
_READERS: Final = frozenset({"integer", "number", "boolean", "names", "seconds", "text"})
"""Functions of `services.scheduler.policy.arguments`."""
_NAMED: Final = re.compile(r"`(\w[\w.<>-]*)`")
"""Arguments that the text about a plugin's `__init__` names; some are read by hand."""
_INERT: Final = "accepted, no effect"


def render(page: str) -> str:
    """Return the page with fresh tables. Raises ValueError when a mark is missing."""
    for name, lines in _tables():
        page = filled(page, name, lines)
    return page


def filled(page: str, name: str, lines: list[str]) -> str:
    """Return a page with `lines` between the marks `name`; raises ValueError without them."""
    begin, end = f"<!-- begin {name}: made by `make crds` -->", f"<!-- end {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page lacks the mark {begin!r} or {end!r}")
    return "\n".join([f"{before}{begin}", *lines, f"{end}{after}"])


def _tables() -> Iterator[tuple[str, list[str]]]:
    fields = {name: fields_of(settings_type(name)) for name in (*SERVICES, *OPTIONAL, "declarer")}
    first = next(iter(fields.values()))
    yield "common flags", _flags(field for field in first if field.common)
    several = _of_several(fields)
    yield "flags of several services", _shared_flags(several)
    for service, known in fields.items():
        own = (f for f in known if not f.common and (f.flag, f.description) not in several)
        yield f"{service} flags", _flags(own)
    yield "actions", _table("action", ((n, _module_of(a), "") for n, a in ACTIONS.items()))
    plugins = ((n, _module_of(p), _arguments(p)) for n, p in PLUGINS.items())
    yield "plugins", _table("plugin", plugins, "arguments (default)")
    jobs = ((n, _module_of(type(p)), _taken_by(p)) for n, p in sorted(JOB_PLUGINS.items()))
    yield "job plugins", _table("job plugin", jobs, "arguments (default)")


def _flags(fields: Iterable[Field]) -> list[str]:
    lines = ["| flag | default | meaning |", "|---|---|---|"]
    idle: list[str] = []
    for field in fields:
        if field.description.startswith(_INERT):
            idle.append(f"`--{field.flag}`")
        else:
            lines.append(f"| `--{field.flag}` | {_default(field)} | {plain(field.description)} |")
    if idle:
        text = f"Accepted for compatibility with Volcano, without effect: {', '.join(idle)}."
        lines += ["", *textwrap.wrap(text, 100, break_on_hyphens=False)]
    return lines


def _of_several(
    fields: Mapping[str, Iterable[Field]],
) -> dict[tuple[str, str], list[tuple[str, Field]]]:
    """Return (flag, description) → services, of flags that two or more share in one meaning."""
    users: dict[tuple[str, str], list[tuple[str, Field]]] = defaultdict(list)
    for service, known in fields.items():
        for field in known:
            if not field.common and not field.description.startswith(_INERT):
                users[field.flag, field.description].append((service, field))
    return {key: found for key, found in users.items() if len(found) > 1}


def _shared_flags(several: Mapping[tuple[str, str], list[tuple[str, Field]]]) -> list[str]:
    lines = ["| flag | services (default) | meaning |", "|---|---|---|"]
    for (flag, description), users in sorted(several.items()):
        services: dict[str, list[str]] = defaultdict(list)
        for service, field in users:
            services[_default(field)].append(service)
        of = "; ".join(
            f"{', '.join(names)}{f' ({default})' if default else ''}"
            for default, names in services.items()
        )
        lines.append(f"| `--{flag}` | {of} | {plain(description)} |")
    return lines


def _default(field: Field) -> str:
    value = field.default
    if field.is_secret or value in ("", ()):
        return ""
    if field.kind is Seconds and isinstance(value, int | float):
        return f"`{show_seconds(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{','.join(map(str, value)) if isinstance(value, list | tuple) else value}`"


def _table(what: str, rows: Iterable[tuple[str, str, str]], more: str = "") -> list[str]:
    head = ["| " + " | ".join(filter(None, (what, "what it does", more))) + " |"]
    head.append("|---" * (3 if more else 2) + "|")
    return head + [
        "| " + " | ".join([f"`{name}`", does, *([takes] if more else [])]) + " |"
        for name, does, takes in rows
    ]


def _module_of(thing: Callable[..., object]) -> str:
    """Return the first sentence about a plugin or action: that of its module."""
    text = importlib.import_module(thing.__module__).__doc__ or ""
    sentence = plain(text.split("\n\n", maxsplit=1)[0])
    return sentence.partition(": ")[2] or sentence


def _arguments(plugin: Callable[..., object]) -> str:
    """Return the arguments that a plugin's module reads, with their defaults."""
    module = importlib.import_module(plugin.__module__)
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    known: dict[str, object] = dict(vars(module))
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            known |= {ast.unparse(target): node.value.value for target in node.targets}
    del known["name"]  # each plugin's own, and what loops over resources call theirs
    calls = (node for node in nodes if isinstance(node, ast.Call))
    read = [call for call in calls if getattr(call.func, "id", "") in _READERS]
    found = {_text_of(call.args[1], known): _default_of(call, known) for call in read}
    named = dict.fromkeys(_NAMED.findall(getattr(plugin, "__init__", plugin).__doc__ or ""), "")
    if named:  # names without a dot that it does not tell of are inside of a section
        found = named | {name: text for name, text in found.items() if "." in name or name in named}
    return ", ".join(f"`{name}`{default}" for name, default in sorted(found.items()))


def _taken_by(plugin: JobPlugin) -> str:
    """Return the arguments of a job plugin with their defaults."""
    return ", ".join(f"`--{name}`{_shown(value)}" for name, value in sorted(plugin.flags.items()))


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f" ({text})" if text else ""


def _text_of(name: ast.expr, known: Mapping[str, object]) -> str:
    """Return the text of a literal, a constant, or an f-string as far as its parts are known."""
    if isinstance(name, ast.Name):
        return str(known.get(name.id, f"<{name.id}>"))
    if isinstance(name, ast.FormattedValue):
        return str(known.get(ast.unparse(name.value), "<name>"))
    if isinstance(name, ast.JoinedStr):
        return "".join(_text_of(part, known) for part in name.values)
    return str(ast.literal_eval(name))


def _default_of(call: ast.Call, known: Mapping[str, object]) -> str:
    given = [*call.args[2:], *(keyword.value for keyword in call.keywords)]
    shown = [ast.unparse(value) for value in given]
    return "".join(f" ({known.get(text, text)})".lower().replace("'", "") for text in shown[:1])


def plain(text: str) -> str:
    """Return a description for a cell of a table: one line, without the ids of behaviours."""
    return _BEHAVIOUR.sub("", " ".join(text.split())).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
