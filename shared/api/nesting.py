"""How deeply JSON may be nested before it is no object that anybody means to run.

The API server takes ten thousand levels wherever a schema leaves fields open, such as in a pod
template. Decoders call themselves for each level and give up (RecursionError) at about a thousand,
and so does whatever walks through the decoded object, somewhat earlier. So there is a bound far
below: objects beyond it are refused by admission, held back by the controller and, where they are
too deep to be read at all, reported by name and otherwise passed over (`shared.kube.decode`).
"""

import re
from typing import Final

NESTING_MAX: Final = 100
"""Levels of objects and lists; a pod template has about a dozen."""
TOO_DEEP: Final = f"nested more than {NESTING_MAX} levels deep"

_CUT: Final = f'"({TOO_DEEP})"'.encode()
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{\[]|[}\]]', re.DOTALL)
"""A text, which may hold brackets, or a bracket."""


def is_too_deep(json: bytes, levels: int = NESTING_MAX) -> bool:
    """Tell whether sound JSON has more than so many levels; costs nothing for usual objects."""
    if json.count(b"{") + json.count(b"[") <= levels:
        return False
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
    """Return JSON with a remark in place of whatever is deeper than so many levels.

    What breaks off below them does so at the remark, and is as unsound as it was.
    """
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


def is_cut(json: bytes) -> bool:
    """Tell whether `cut` has left its remark."""
    return _CUT in json
