"""Limits how deeply JSON may be nested: the limit exceeds the depth of any real object.

The API server accepts ten thousand levels in open fields, such as in a pod template. Recursive
decoders fail (RecursionError) at about a thousand, and code that walks through decoded objects
fails earlier. So the limit is far lower: admission rejects deeper objects, the controller does not
run them, and objects too deep to decode are only reported by name (`shared.kube.decode`).
"""

import importlib
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Final

NESTING_MAX: Final = 100
"""Levels of objects and lists; a pod template has about a dozen."""
TOO_DEEP: Final = f"nested more than {NESTING_MAX} levels deep"

_CUT: Final = f'"({TOO_DEEP})"'.encode()
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{\[]|[}\]]', re.DOTALL)
"""A text, which may hold brackets, or a bracket."""
_INSIDE: Final = 2
_MANY: Final = 5000
"""Brackets beyond which their depths are counted in columns."""
_CUTS_MAX: Final = 1000
_SHALLOWER: Final = (20, 8, 3)
"""Levels that are tried when a cut at the bound would leave too many marks."""


def is_too_deep(json: bytes, levels: int = NESTING_MAX) -> bool:
    """Tell whether valid JSON has more than `level` levels; cheap for usual objects."""
    brackets = json.count(b"{") + json.count(b"[")
    if brackets <= levels:
        return False
    if brackets > _MANY:
        return bool(_columns().is_deeper(json, levels))
    depth = 0
    for token in _TOKEN.finditer(json):
        sign = json[token.start()]
        if sign in b"{[":
            depth += 1
            if depth > levels:
                return True
        elif sign in b"}]":
            depth -= 1
    return False


def cut(json: bytes, levels: int = NESTING_MAX) -> bytes:
    """Return JSON with a remark in place of values below a number of levels.

    Invalid JSON below them stays invalid. If there are more than a thousand such values, a lower
    limit is used.
    """
    if json.count(b"{") + json.count(b"[") > _MANY:
        shallower = (level for level in _SHALLOWER if level < levels)
        return bytes(_columns().cut_below(json, (levels, *shallower), _CUT, most=_CUTS_MAX))
    parts: list[bytes] = []
    depth = kept_to = 0
    for token in _TOKEN.finditer(json):
        sign = json[token.start()]
        if sign in b"{[":
            depth += 1
            if depth == levels + 1:
                parts += [json[kept_to : token.start()], _CUT]
        elif sign in b"}]":
            depth -= 1
            if depth == levels:
                kept_to = token.end()
    return b"".join(parts if depth > levels else [*parts, json[kept_to:]])


def _columns() -> ModuleType:
    """Import numpy code only when needed: few processes ever do."""
    return importlib.import_module("shared.api.depths")


def is_cut(json: bytes) -> bool:
    """Tell whether `cut` has left its remark."""
    return _CUT in json


def extract(json: bytes, name: bytes) -> tuple[bytes, bytes]:
    """Return a member (object or list) of a JSON object, and the rest with null there.

    Returns b"" and the whole if there is none. Only brackets and quotes are read; the rest may be
    invalid JSON.
    """
    for start, end in _parts(json):
        before = json[:start].rstrip()
        if before.endswith(b":") and before[:-1].rstrip().endswith(b'"%s"' % name):
            return json[start:end], json[:start] + b"null" + json[end:]
    return b"", json


def elements(json: bytes) -> list[bytes]:
    """Return the objects and lists in a JSON list; only brackets and quotes are read."""
    return [json[start:end] for start, end in _parts(json)]


def _parts(json: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the brackets right inside the outermost ones open and close."""
    depth = start = 0
    for token in _TOKEN.finditer(json):
        sign = json[token.start()]
        if sign in b"{[":
            depth += 1
            if depth == _INSIDE:
                start = token.start()
        elif sign in b"}]":
            depth -= 1
            if depth == _INSIDE - 1:
                yield start, token.end()
