"""Objects as documents: read from YAML, written as YAML and JSON in the forms of Go's writers.

Pure. Go's programs read an object into its type and write the type: empty fields vanish, quantities
become canonical, JSON has the fields in the order of the type. `shapes` knows the types.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml
from typing_extensions import override

from pumice.vcctl.flags import CommandFailure
from pumice.vcctl.shapes import shaped

Object = dict[str, Any]

_OTHER_THAN_TEXT: Final = re.compile(
    r"""(?:|~|null|y|n|yes|no|on|off|true|false|<<|\.nan|[-+]?\.inf
    |[-+]?(?:0b[01_]+|0x[\da-f_]+|0o?[0-7_]+|\d[\d_]*)
    |[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:e[-+]?\d+)?
    |[-+]?\d[\d_]*(?::[0-5]?\d)+(?:\.[\d_]*)?
    |\d{4}-\d\d?-\d\d?(?:[Tt ].*)?)""",
    re.VERBOSE | re.IGNORECASE,
)
"""Texts that a reader of YAML might take for a number, a truth or a moment: written in quotes."""


def first(content: str) -> Object:
    """Return the first document of a file. Raises CommandFailure."""
    return _read(content, lambda: next(yaml.safe_load_all(content), None))


def each(content: str) -> Iterator[Object]:
    """Yield the objects of a file; ⚠ it is cut at each `---`, wherever that stands.

    Raises CommandFailure at the first that cannot be read; those before it have been yielded.
    """
    for part in content.split("---"):
        if part.strip():
            yield first(part)


def as_yaml(item: Mapping[str, Any], kind: str) -> str:
    """Return an object of a kind as YAML, its fields by name."""
    return yaml.dump(shaped(item, kind), Dumper=_Dumper, allow_unicode=True)


def as_json(item: Mapping[str, Any], kind: str) -> str:
    """Return an object of a kind as JSON, its fields in the order of the type."""
    text = json.dumps(shaped(item, kind), indent=2, ensure_ascii=False)
    return f"{escaped(text)}\n"


def escaped(text: str) -> str:
    """Return JSON with what could end a script on a page written as numbers, as Go does."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class _Dumper(yaml.SafeDumper):
    """YAML as Go's writer has it: lists not indented, texts in double quotes where needed."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _OTHER_THAN_TEXT.fullmatch(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
# Go's writer leaves a bare `=` without quotes.
_Dumper.yaml_implicit_resolvers = {
    first: found for first, found in yaml.SafeDumper.yaml_implicit_resolvers.items() if first != "="
}


def _read(content: str, read: Callable[[], object]) -> Object:
    try:
        found = read()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise CommandFailure(
            f"error converting YAML to JSON: yaml: {line}{error.problem}"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        text = " ".join(str(error).split())
        raise CommandFailure(f"error converting YAML to JSON: yaml: {text}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise CommandFailure(f"error unmarshaling JSON: {content.strip()[:40]!r} is no object")
    plain: Object = _plain(found)
    return plain


def _plain(value: object) -> Any:  # noqa: ANN401 - a value of JSON
    """Return a document in JSON's types: keys are texts, and so are moments."""
    if isinstance(value, dict):
        return {_key(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
