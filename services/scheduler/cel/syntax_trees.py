"""Changes of an expression's syntax tree that make the library read it as Kubernetes does.

In Kubernetes a domain that a device lacks has no attributes: `device.attributes["none"]` is an
empty map. The library would raise an error. So a look-up in `device.attributes` and
`device.capacity` becomes `device.attributes[?"none"].orValue({})`. The tree is a message of the CEL
specification (`cel.expr.ParsedExpr`), of which only the fields that are used here are declared.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message, message_factory

from services.scheduler.cel.values import NAMES, RENAMED


class BadExpression(ValueError):  # noqa: N818 - reads as the fact it states
    """The text is no expression, or one that names what does not exist."""


_Field: Final = descriptor_pb2.FieldDescriptorProto
_NUMBER, _TEXT, _BOOL, _MESSAGE = (
    _Field.TYPE_INT64,
    _Field.TYPE_STRING,
    _Field.TYPE_BOOL,
    _Field.TYPE_MESSAGE,
)
_SCHEMA: Final[dict[str, dict[str, tuple[int, Any]]]] = {
    "ParsedExpr": {"expr": (2, "Expr")},
    "Expr": {
        "id": (2, _NUMBER),
        "const_expr": (3, "Constant"),
        "ident_expr": (4, "Ident"),
        "select_expr": (5, "Select"),
        "call_expr": (6, "Call"),
        "list_expr": (7, "List"),
        "struct_expr": (8, "Struct"),
        "comprehension_expr": (9, "Comprehension"),
    },
    "Constant": {"bool_value": (2, _BOOL), "string_value": (6, _TEXT)},
    "Ident": {"name": (1, _TEXT)},
    "Select": {"operand": (1, "Expr"), "field": (2, _TEXT), "test_only": (3, _BOOL)},
    "Call": {"target": (1, "Expr"), "function": (2, _TEXT), "args": (3, ["Expr"])},
    "List": {"elements": (1, ["Expr"])},
    "Struct": {"entries": (2, ["Entry"])},
    "Entry": {"map_key": (3, "Expr"), "value": (4, "Expr")},
    "Comprehension": {
        "iter_var": (1, _TEXT),
        "iter_range": (2, "Expr"),
        "accu_var": (3, _TEXT),
        "accu_init": (4, "Expr"),
        "loop_condition": (5, "Expr"),
        "loop_step": (6, "Expr"),
        "result": (7, "Expr"),
        "iter_var2": (8, _TEXT),
    },
}
_ONE_OF: Final = frozenset({"Expr", "Constant"})
"""Messages of whose fields one is set at most, but for `id`."""


def _classes() -> Mapping[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="expr.proto", package="expr", syntax="proto3")
    for name, fields in _SCHEMA.items():
        described = file.message_type.add(name=name)
        if name in _ONE_OF:
            described.oneof_decl.add(name="kind")
        for field, (number, kind) in fields.items():
            repeated = isinstance(kind, list)
            of = kind[0] if isinstance(kind, list) else kind
            made = described.field.add(
                name=field,
                number=number,
                label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
                type=_MESSAGE if isinstance(of, str) else of,
            )
            if isinstance(of, str):
                made.type_name = f".expr.{of}"
            if name in _ONE_OF and field != "id":
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"expr.{name}") for name in _SCHEMA)
    return {each.name: message_factory.GetMessageClass(each) for each in found}


_CLASSES: Final = _classes()
_Expr: Final = _CLASSES["Expr"]
_DEVICE, _DOMAINS = "device", "domains"
_DOMAIN_MAPS: Final = frozenset({"attributes", "capacity"})
_GLOBALS: Final = frozenset(
    """
    device type int uint double bool string bytes list map null_type timestamp duration dyn
    optional_type sets lists optional cel strings
    """.split()  # noqa: SIM905 - words in lines are easier to read
)
"""Variable, types, and prefixes of functions."""
_STANDARD: Final = frozenset(
    """
    size int uint double string bytes bool dyn type duration timestamp matches startsWith endsWith
    contains charAt indexOf lastIndexOf lowerAscii upperAscii replace split substring trim join
    format quote reverse orValue or value hasValue of none ofNonZeroValue optMap optFlatMap
    equivalent intersects slice flatten distinct sort sortBy range first last transformList
    getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes
    getSeconds getMilliseconds
    """.split()  # noqa: SIM905 - likewise
)
"""Functions of the library that Kubernetes has, too."""

Scope = Mapping[str, str]
"""Variable → `_DEVICE`, `_DOMAINS`, or "" for anything else."""


def adapted(serialized: bytes) -> bytes:
    """Return a serialized tree with the changes. Raises `BadExpression`."""
    wrapped = any_pb2.Any.FromString(serialized)
    try:
        parsed = _CLASSES["ParsedExpr"].FromString(wrapped.value)
    except message.DecodeError as error:
        raise BadExpression("nested too deep") from error
    _Adaption().expr(parsed.expr, {_DEVICE: _DEVICE})
    wrapped.value = parsed.SerializeToString()
    return bytes(wrapped.SerializeToString())


class _Adaption:
    """One walk over a tree, which it changes in place."""

    def __init__(self) -> None:
        self._id = 1 << 20  # beyond the ids of the parser, which counts the nodes of 10 KiB

    def expr(self, node: Any, scope: Scope) -> str:  # noqa: ANN401 - messages have no types
        """Adapt a node; return what its value is, as in a `Scope`."""
        kind = node.WhichOneof("kind")
        if kind == "ident_expr":
            return _named(node.ident_expr.name, scope)
        if kind == "select_expr":
            return self._select(node, scope)
        if kind == "call_expr":
            return self._call(node, scope)
        if kind == "comprehension_expr":
            return self._comprehension(node.comprehension_expr, scope)
        if kind == "list_expr":
            for each in node.list_expr.elements:
                self.expr(each, scope)
        elif kind == "struct_expr":
            for entry in node.struct_expr.entries:
                self.expr(entry.map_key, scope)
                self.expr(entry.value, scope)
        return ""

    def _select(self, node: Any, scope: Scope) -> str:  # noqa: ANN401
        select = node.select_expr
        of = self.expr(select.operand, scope)
        if of == _DEVICE and not select.test_only and select.field in _DOMAIN_MAPS:
            return _DOMAINS
        if of != _DOMAINS:
            return ""
        if select.test_only:
            node.const_expr.bool_value = True  # there is a map for each domain
            return ""
        key = self._new(const_expr=_CLASSES["Constant"](string_value=select.field))
        found = self._called("_?._", [_copied(select.operand), key])
        self._or_empty(node, found)
        return ""

    def _call(self, node: Any, scope: Scope) -> str:  # noqa: ANN401
        call = node.call_expr
        has_target = call.HasField("target")
        of = self.expr(call.target, scope) if has_target else ""
        kinds = [self.expr(each, scope) for each in call.args]
        _check_function(call.function)
        call.function = RENAMED.get(call.function, call.function)
        if of or not kinds or kinds[0] != _DOMAINS:
            return ""
        if call.function == "_[_]":
            self._or_empty(node, self._called("_[?_]", [_copied(each) for each in call.args]))
        elif call.function in {"_[?_]", "_?._"}:
            inner = self._new()
            self._or_empty(inner, _copied(node))
            made = self._called("of", [inner], target=_Expr(ident_expr={"name": "optional"}))
            made.call_expr.target.id = self._next()
            node.CopyFrom(made)
        return ""

    def _comprehension(self, loop: Any, scope: Scope) -> str:  # noqa: ANN401
        self.expr(loop.iter_range, scope)
        bound = self.expr(loop.accu_init, scope)
        # Macros make comprehensions; `cel.bind` makes one that never loops, for its variable.
        within = {**scope, loop.accu_var: bound}
        inner = {**within, loop.iter_var: ""}
        if loop.iter_var2:
            inner[loop.iter_var2] = ""
        self.expr(loop.loop_condition, inner)
        self.expr(loop.loop_step, inner)
        return self.expr(loop.result, within)

    def _or_empty(self, node: Any, optional: Any) -> None:  # noqa: ANN401
        """Make of a node the value of an optional one, or an empty map."""
        empty = self._new(struct_expr=_CLASSES["Struct"]())
        node.CopyFrom(self._called("orValue", [empty], target=optional))

    def _called(self, function: str, arguments: list[Any], target: Any = None) -> Any:  # noqa: ANN401
        return self._new(
            call_expr=_CLASSES["Call"](target=target, function=function, args=arguments)
        )

    def _new(self, **fields: Any) -> Any:  # noqa: ANN401
        return _Expr(id=self._next(), **fields)

    def _next(self) -> int:
        self._id += 1
        return self._id


def _named(name: str, scope: Scope) -> str:
    if name not in scope and name.removeprefix(".") not in _GLOBALS and not name.startswith("@"):
        raise BadExpression(f"undeclared reference to {name!r}")
    return scope.get(name, "")


def _check_function(name: str) -> None:
    last = name.rpartition(".")[2]
    is_operator = not last[:1].isalpha()
    if not is_operator and last not in _STANDARD and last not in NAMES:
        raise BadExpression(f"undeclared reference to {name!r}")


def _copied(node: Any) -> Any:  # noqa: ANN401
    copy = _Expr()
    copy.CopyFrom(node)
    return copy
