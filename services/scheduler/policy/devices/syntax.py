"""The syntax of CEL, the language of conditions on devices: from text to a tree.

Our own because the library at hand neither bounds the work of an expression nor knows optional
fields (`.?name`), and conditions come from users (ADR 27). Bounded: the API server takes no text
beyond 10 KiB, and a tree deeper than `DEPTH_MAX` is refused here.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

LENGTH_MAX: Final = 10 * 1024
DEPTH_MAX: Final = 50
MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<string>[rR]?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
        |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<int>0x[0-9a-fA-F]+[uU]?|\d+[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>&&|\|\||<=|>=|==|!=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_SIMPLE: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_BINARY: Final = (
    ("||",),
    ("&&",),
    ("<", "<=", ">", ">=", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""Operators by their binding, loosest first; all bind to the left."""
_WORDS: Final = {"true": True, "false": False, "null": None}


class BadExpression(ValueError):  # noqa: N818 - reads as the fact it states
    """The text is no expression, or one that is not known here."""


class Node(NamedTuple):
    """One operation; `parts` are its operands."""

    kind: str
    """`literal`, `name`, `select`, `index`, `call`, `macro`, `has`, `bind`, `list`, `map`, `?:`,
    `!`, `neg`, or an operator."""
    parts: tuple["Node", ...] = ()
    value: Any = None
    """Of a literal; else the name of a variable, field or function."""
    optional: bool = False
    """Whether an absent field or key gives an empty optional value."""
    depth: int = 1


class _Token(NamedTuple):
    kind: str
    text: str


def parse(text: str) -> Node:
    """Return the tree of an expression. Raises `BadExpression`."""
    if len(text) > LENGTH_MAX:
        raise BadExpression(f"an expression of {len(text)} letters")
    return _Parser(list(_tokens(text))).whole()


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadExpression(f"unexpected {text[at : at + 10]!r}")
        if match.lastgroup != "space":
            yield _Token(match.lastgroup or "", match.group())
        at = match.end()
    yield _Token("end", "")


def node(kind: str, *parts: Node, value: object = None, optional: bool = False) -> Node:
    """Return a node over its parts. Raises `BadExpression` where the tree gets too deep."""
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > DEPTH_MAX:
        raise BadExpression(f"nested more than {DEPTH_MAX} deep")
    return Node(kind, parts, value, optional, depth)


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        found = self._expression()
        if self._peek().kind != "end":
            raise BadExpression(f"unexpected {self._peek().text!r}")
        return found

    # --- tokens ------------------------------------------------------------------------------

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str:
        """Take one of these marks or words if it comes next; "" if it does not."""
        token = self._peek()
        if token.kind in {"mark", "name"} and token.text in texts:
            self._at += 1
            return token.text
        return ""

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise BadExpression(f"expected {text!r} before {self._peek().text!r}")

    def _name(self) -> str:
        token = self._peek()
        if token.kind != "name":
            raise BadExpression(f"expected a name before {token.text!r}")
        self._at += 1
        return token.text

    # --- expressions -------------------------------------------------------------------------

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadExpression(f"nested more than {DEPTH_MAX} deep")
        found = self._binary(0)
        if self._take("?"):
            then = self._binary(0)
            self._need(":")
            found = node("?:", found, then, self._expression())
        self._depth -= 1
        return found

    def _binary(self, level: int) -> Node:
        if level == len(_BINARY):
            return self._unary()
        parts = [self._binary(level + 1)]
        while operator := self._take(*_BINARY[level]):
            following = self._binary(level + 1)
            if operator in {"||", "&&"}:
                parts.append(following)  # a flat chain, however long
            else:
                parts = [node(operator, parts[0], following)]
        return parts[0] if len(parts) == 1 else node(_BINARY[level][0], *parts)

    def _unary(self) -> Node:
        if operator := self._take("!", "-"):
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise BadExpression(f"nested more than {DEPTH_MAX} deep")
            token = self._peek()
            if operator == "-" and token.kind in {"int", "double"}:
                self._tokens[self._at] = _Token(token.kind, f"-{token.text}")
                found = self._member()
            else:
                found = node("!" if operator == "!" else "neg", self._unary())
            self._depth -= 1
            return found
        return self._member()

    def _member(self) -> Node:
        found = self._primary()
        while mark := self._take(".", ".?", "[", "[?"):
            if mark in {"[", "[?"}:
                found = node("index", found, self._expression(), optional=mark == "[?")
                self._need("]")
                continue
            name = self._name()
            if mark == "." and self._take("("):
                found = self._call(name, found)
            else:
                found = node("select", found, value=name, optional=mark == ".?")
        return found

    def _primary(self) -> Node:
        token = self._peek()
        if token.kind in {"string", "int", "double"}:
            self._at += 1
            return node("literal", value=_literal(token))
        if self._take("("):
            found = self._expression()
            self._need(")")
            return found
        if self._take("["):
            return node("list", *self._items("]"))
        if self._take("{"):
            return self._entries()
        self._take(".")
        name = self._name()
        if name in _WORDS:
            return node("literal", value=_WORDS[name])
        return self._call(name, None) if self._take("(") else node("name", value=name)

    def _items(self, end: str) -> list[Node]:
        items: list[Node] = []
        while not self._take(end):
            items.append(self._expression())
            if not self._take(","):
                self._need(end)
                break
        return items

    def _entries(self) -> Node:
        items: list[Node] = []
        while not self._take("}"):
            items.append(self._expression())
            self._need(":")
            items.append(self._expression())
            if not self._take(","):
                self._need("}")
                break
        return node("map", *items)

    def _call(self, name: str, target: Node | None) -> Node:
        items = self._items(")")
        if target is None:
            if name == "has":
                return _presence(items)
            return node("call", *items, value=name)
        if target.kind == "name" and target.value == "cel" and name == "bind":
            return _binding(items)
        if target.kind == "name" and target.value in {"optional", "sets"}:
            return node("call", *items, value=f"{target.value}.{name}")
        if name in MACROS and len(items) in {2, 3}:
            return _comprehension(name, target, items)
        return node("call", target, *items, value=f".{name}")


def _presence(items: list[Node]) -> Node:
    if len(items) != 1 or items[0].kind != "select":
        raise BadExpression("has() asks for a field")
    return node("has", *items[0].parts, value=items[0].value)


def _binding(items: list[Node]) -> Node:
    if len(items) != 3 or items[0].kind != "name":  # noqa: PLR2004 - name, value, expression
        raise BadExpression("cel.bind() takes a name, a value and an expression")
    return node("bind", items[1], items[2], value=items[0].value)


def _comprehension(name: str, target: Node, items: list[Node]) -> Node:
    if items[0].kind != "name":
        raise BadExpression(f"{name}() names a variable first")
    if len(items) == 3 and name != "map":  # noqa: PLR2004 - variable, condition, expression
        raise BadExpression(f"{name}() of two variables is not known here")
    return node("macro", target, *items[1:], value=(name, items[0].value))


def _literal(token: _Token) -> object:
    text = token.text
    if token.kind == "double":
        return float(text)
    if token.kind == "int":
        number = int(text.rstrip("uU"), 0 if "x" in text else 10)
        if not -(1 << 63) <= number < 1 << 63:
            raise BadExpression(f"{text} is beyond 64 bits")
        return number
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    width = 3 if body[:3] in {'"""', "'''"} else 1
    body = body[width:-width]
    return body if raw else _ESCAPE.sub(_unescaped, body)


def _unescaped(match: re.Match[str]) -> str:
    two, four, eight, octal, simple = match.groups()
    if two or four or eight:
        return _letter(int(two or four or eight, 16))
    if octal:
        return _letter(int(octal, 8))
    return _SIMPLE.get(simple, simple)


def _letter(number: int) -> str:
    try:
        return chr(number)
    except (ValueError, OverflowError) as error:
        raise BadExpression(f"no letter has the number {number}") from error
