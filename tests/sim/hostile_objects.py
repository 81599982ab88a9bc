"""Hostile objects of every kind, made from the API server's own OpenAPI with hypothesis.

An object begins as a valid one of its kind. Then some fields, chosen along the schema, get values
that the schema allows and that no user would write: numbers at the edges of their type and beyond
ours, amounts with absurd exponents, texts of every odd form, rings, depth, crowds. What a schema
leaves open (pod templates) gets anything that is JSON. The server decides what it takes.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from shared.api import keys
from tests.sim.valid_objects import BATCH, FLOW, VALID_OBJECTS, ValidObject

Json = dict[str, Any]
REFERENCE: Final = "#/components/schemas/"


class Planted(NamedTuple):
    """One object to be created, and the status that it is to be given then."""

    plural: str
    body: Json
    status: Json | None


INTEGERS: Final = (
    0, 1, -1, 2, 7, 127, 1000, 65_535, 150_000, 2**31 - 1, -(2**31), 2**31, 2**53 + 1,
    2**63 - 1, -(2**63), 2**63, 2**64, 10**30,
)  # fmt: skip
QUANTITIES: Final = (
    "0", "1", "100m", "1Gi", "8Ei", "4Ei", "9223372036854775807", "9223372036854775808",
    "9223372036854775807Ei", "1e18", "1e30", "1e999", "1E-999", "1n", "0.000000001", "-1", "-8Ei",
    "+5", ".5", "5.", "1e1.5", "9" * 90, "9" * 200, "0" * 300 + "1", "1u", "1Mi", "0.1Ki",
)  # fmt: skip
TIMES: Final = (
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-06-30T23:59:60Z",
    "2026-01-01T00:00:00.123456789Z",
)  # fmt: skip
TEXTS: Final = (
    "", "x", "X Y", "ü", "\u202e", "\x00", "\x7f", "😀" * 50, "a/b", "..", "../x", "x" * 300,
    "x" * 20_000, "-", "=", "-1", "0", "9" * 5000, "1e999", "nan", "inf", "٣", "5%", "-5%", "true",
    "{", "[]", "null", '{"a":', "[" * 3000 + "]" * 3000, '{"a":1e999}', '["\\ud800"]', "a,b,,c;d",
    "cpu=1,memory=" + "9" * 400, "* * * * *", "*/0 * * * *", "0 0 30 2 *", "@every 9e9h",
    "@every 1ns", "TZ=x * * * * *", "60 25 * * 8", "Europe/Berlin", "Europe/../x", "zone.tab",
    "((", "a{9999999999}", "(?P<n>a)(?P<n>b)", "(a*)*b", "\\8", "9999999999999999h", "1h1h1h",
    "-5m", "1ns", "PodFailed", "*", "AbortJob", "RestartJob", "CompleteJob", "default", "root",
    "healthy", "Open", "Closed", "Running", "Inqueue", "Pending", "Completed",
    "--port=99999999999999999999", "--master=", "--disable-network-policy=maybe", "root/a/b",
    "1/2/3", "0/0", "node-0", "kubernetes.io/hostname", "volcano", "a" * 253, "a" * 63, "host0",
    "host1", "host2",
)  # fmt: skip
RESOURCES: Final = (
    "cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi",
    "volcano.sh/vgpu-memory", "volcano.sh/vgpu-number", "attachable-volumes-aws-ebs", "a/b",
    "requests.cpu", "limits.memory", "count/jobs.batch", "x" * 60,
)  # fmt: skip
ANNOTATIONS: Final = tuple(
    value
    for name, value in sorted(vars(keys).items())
    if name.isupper() and isinstance(value, str) and "/" in value and not value.endswith("/")
)
"""Every key that the services know, whatever it is for."""
LARGEST: Final = 1_400_000
"""Bytes of an object; etcd takes no more by default."""
_DEEP: Final = "levels of nesting: "
_DEPTH: Final = (30, 90, 120, 400, 950, 3000)
_OWNERS: Final = (
    {"apiVersion": BATCH, "kind": "Job", "name": "gang", "uid": "0", "controller": True},
    {"apiVersion": BATCH, "kind": "CronJob", "name": "x", "uid": "1", "controller": True},
    {"apiVersion": FLOW, "kind": "JobFlow", "name": "x", "uid": "2", "controller": True},
    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "3"},
)


class OpenApi:
    """The schemas of a server: the answers to `/openapi/v3/<place>` by place."""

    def __init__(self, documents: Mapping[str, Json]) -> None:
        self._schemas: Json = {}
        for document in documents.values():
            self._schemas |= document["components"]["schemas"]
        self._by_kind: dict[tuple[str, str, str], Json] = {}
        for schema in self._schemas.values():
            for head in schema.get("x-kubernetes-group-version-kind", ()):
                self._by_kind[head["group"], head["version"], head["kind"]] = schema

    def of(self, valid: ValidObject) -> Json:
        """Return the schema of a kind."""
        group, _, version = valid.version.rpartition("/")
        return self._by_kind[group, version, valid.kind]

    def open(self, schema: Json) -> Json:
        """Return a schema with references followed."""
        while True:
            if "$ref" in schema:
                schema = self._schemas[schema["$ref"].removeprefix(REFERENCE)]
            elif len(schema.get("allOf", ())) == 1:
                (one,) = schema["allOf"]
                schema = {**{k: v for k, v in schema.items() if k != "allOf"}, **one}
            else:
                return schema


def deep(levels: int) -> str:
    """Return what `as_json` writes as an object that is nested so deeply."""
    return f"{_DEEP}{levels}"


_OPEN = st.one_of(
    st.sampled_from(INTEGERS),
    st.sampled_from(TEXTS),
    st.sampled_from((None, True, 1.5, 1e308, -0.0)),
    st.builds(deep, st.sampled_from(_DEPTH)),
    st.builds(lambda n: [{}] * n, st.sampled_from((1, 5000))),
    st.dictionaries(st.sampled_from(TEXTS[:20]), st.sampled_from(TEXTS), max_size=4),
)
"""Anything that is JSON, for fields that a schema leaves open."""


@st.composite
def values(draw: st.DrawFn, api: OpenApi, schema: Json, name: str = "", depth: int = 0) -> Any:
    """Return a value that a schema allows, as far as types go."""
    schema = api.open(schema)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if schema.get("x-kubernetes-int-or-string") or "oneOf" in schema or "anyOf" in schema:
        return draw(st.sampled_from((*QUANTITIES, *INTEGERS, "50%")))
    match schema.get("type"):
        case "integer":
            return draw(_integers(schema))
        case "number":
            return draw(st.sampled_from((0.0, -1.5, 1e308, 2**63)))
        case "boolean":
            return draw(st.booleans())
        case "string":
            return draw(_texts(schema, name))
        case "array":
            return draw(_lists(api, schema, name, depth))
        case "object" if "additionalProperties" in schema:
            return draw(_maps(api, schema, name, depth))
        case "object" if "properties" in schema:
            return draw(_structs(api, schema, depth))
        case _:
            return draw(_OPEN)


def _integers(schema: Json) -> st.SearchStrategy[int]:
    bits = 32 if schema.get("format") == "int32" else 64
    low = schema.get("minimum", -(2 ** (bits - 1)))
    high = schema.get("maximum", 2 ** (bits - 1) - 1)
    fitting = [n for n in INTEGERS if low <= n <= high] or [int(low)]
    return st.sampled_from(fitting)


def _texts(schema: Json, name: str) -> st.SearchStrategy[str]:
    most, least = schema.get("maxLength", 10**6), schema.get("minLength", 0)
    if schema.get("format") == "date-time":
        return st.sampled_from(TIMES)
    if schema.get("format") == "byte":
        return st.just("eA==")
    pool = [text for text in (*TEXTS, *QUANTITIES) if least <= len(text) <= most]
    if pattern := schema.get("pattern"):
        pool = [text for text in pool if re.search(pattern, text)] or ["x"]
    if name in {"nodeName", "namespace"}:
        return st.just("node-0")
    return st.sampled_from(pool)


@st.composite
def _lists(draw: st.DrawFn, api: OpenApi, schema: Json, name: str, depth: int) -> list[Any]:
    item = schema.get("items", {})
    most = min(schema.get("maxItems", 3), 0 if depth > _DEEPEST else 3)
    found = draw(st.lists(values(api, item, name, depth + 1), max_size=most))
    least = schema.get("minItems", 0)
    if found and draw(st.integers(0, 19)) == 0:
        found = found * min(schema.get("maxItems", 300), 300)
    while len(found) < least:
        found.append(draw(values(api, item, name, depth + 1)))
    return found


_DEEPEST: Final = 7


@st.composite
def _maps(draw: st.DrawFn, api: OpenApi, schema: Json, name: str, depth: int) -> Json:
    inner = schema["additionalProperties"]
    inner = inner if isinstance(inner, dict) else {}
    if name == "annotations":
        return draw(
            st.dictionaries(st.sampled_from(ANNOTATIONS), st.sampled_from(TEXTS), max_size=4)
        )
    if name in {"labels", "matchLabels", "nodeSelector"}:
        labels = st.sampled_from(("", "b", "0", "x" * 63))
        return draw(st.dictionaries(st.sampled_from(("a", *ANNOTATIONS)), labels, max_size=3))
    names = st.sampled_from((*RESOURCES, "w", "svc", "a"))
    return draw(st.dictionaries(names, values(api, inner, name, depth + 1), max_size=4))


@st.composite
def _structs(draw: st.DrawFn, api: OpenApi, schema: Json, depth: int) -> Json:
    properties = schema["properties"]
    needed = [name for name in schema.get("required", ()) if name in properties]
    more = (
        []
        if depth > _DEEPEST
        else draw(st.lists(st.sampled_from(sorted(properties)), max_size=3, unique=True))
    )
    return {
        name: draw(values(api, properties[name], name, depth + 1))
        for name in dict.fromkeys((*needed, *more))
    }


@st.composite
def mutated(draw: st.DrawFn, api: OpenApi, schema: Json, valid: Any, name: str = "") -> Any:
    """Return `valid` with one field of it, or one more, given a value of its schema."""
    schema = api.open(schema)
    if isinstance(valid, dict) and "properties" in schema and draw(st.integers(0, 5)):
        properties = schema["properties"]
        known = [field for field in valid if field in properties]
        fields = sorted(properties)
        if bool(known) and draw(st.booleans()):
            fields = known
        field = draw(st.sampled_from(fields))
        inner = properties[field]
        if field in valid:
            return {**valid, field: draw(mutated(api, inner, valid[field], field))}
        return {**valid, field: draw(values(api, inner, field, 2))}
    if isinstance(valid, list) and valid and draw(st.integers(0, 2)):
        place = draw(st.integers(0, len(valid) - 1))
        item = draw(mutated(api, schema.get("items", {}), valid[place], name))
        return [*valid[:place], item, *valid[place + 1 :]]
    if isinstance(valid, dict) and valid and "properties" not in schema and draw(st.booleans()):
        field = draw(st.sampled_from(sorted(valid)))  # an open field, such as a pod template
        return {**valid, field: draw(mutated(api, {}, valid[field], field))}
    return draw(values(api, schema, name, 2))


def _set_amounts(value: Any, resource: str, quantity: str) -> None:
    """Put an amount into each list of amounts within a value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in {"requests", "capability", "minResources", "hard", "allocatable"}:
                inner[resource] = quantity
            else:
                _set_amounts(inner, resource, quantity)
    elif isinstance(value, list):
        for inner in value:
            _set_amounts(inner, resource, quantity)


@st.composite
def _metadata(draw: st.DrawFn, place: str) -> Json:
    meta: Json = {"name": place}
    match draw(st.integers(0, 9)):
        case 0:
            meta["name"] = f"{place}.{'a' * (250 - len(place))}.x"
        case 1:
            meta["name"] = f"{place}-{'b' * (62 - len(place))}"
        case 2:
            meta["ownerReferences"] = [dict(draw(st.sampled_from(_OWNERS)))]
        case 3:
            meta["finalizers"] = ["pumice.dev/never"]
        case 4:
            meta["labels"] = {keys.CREATED_BY_TEMPLATE: draw(st.sampled_from(("a.b", ".", "x")))}
    if draw(st.integers(0, 1)):
        odd = st.dictionaries(st.sampled_from(ANNOTATIONS), st.sampled_from(TEXTS), max_size=5)
        meta["annotations"] = draw(odd)
    return meta


@st.composite
def planted(draw: st.DrawFn, api: OpenApi, plurals: Sequence[str], place: str) -> Planted:
    """Return one hostile object of one of these kinds; `place` begins its name."""
    plural = draw(st.sampled_from(sorted(plurals)))
    valid = VALID_OBJECTS[plural]
    schema = api.of(valid)
    whole: Json = copy.deepcopy(valid.content)
    fields = api.open(schema)["properties"]
    parts = [p for p in fields if p not in {"apiVersion", "kind", "metadata", "status"}]
    if "status" in fields and "status" in whole:
        parts.append("status")
    if draw(st.booleans()):
        _set_amounts(whole, draw(st.sampled_from(RESOURCES)), draw(st.sampled_from(QUANTITIES)))
    for _ in range(draw(st.sampled_from((0, 1) if plural == "pods" else (0, 1, 1, 2, 4)))):
        part = draw(st.sampled_from(sorted(parts)))
        whole[part] = draw(mutated(api, fields[part], whole.get(part, {}), part))
    status = None
    if valid.subresource and "status" in fields and draw(st.booleans()):
        status = draw(mutated(api, fields["status"], {}, "status"))
    meta = draw(_metadata(place))
    body = {"apiVersion": valid.version, "kind": valid.kind, "metadata": meta, **whole}
    return Planted(plural, body, status if isinstance(status, dict) else None)


SIZES: Final = (1_000, 30_000, 300_000, 1_200_000)
"""Bytes to which a part of an object grows: up to what etcd takes."""


def enlarged(body: Json, part: int, size: int) -> Json:
    """Return an object of which one list or map has grown by `size` bytes; `part` chooses it."""
    found = copy.deepcopy(body)
    growing = list(_growing(found)) or [{}]
    grown = growing[part % len(growing)]
    items = grown if isinstance(grown, list) else list(grown.values())
    count = size // (len(json.dumps(items[-1])) + 16) if items else 0
    if isinstance(grown, list):
        grown += [_numbered(items[-1], n) for n in range(count)]
    else:
        grown |= {f"grown-{n}": items[-1] for n in range(count)}
    return found


def _growing(value: Any) -> Iterator[Any]:
    """Yield lists with something in them, and maps of names to amounts or texts."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _growing(each)
    is_map = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
    if value and (isinstance(value, list) or is_map):
        yield value


def _numbered(item: Any, number: int) -> Any:
    """Return an item like another one, under a name of its own if it has one."""
    if isinstance(item, str):
        return f"{item[:40]}-{number}"
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return {**item, "name": f"{item['name'][:40]}-{number}"}
    return item


def draw_objects(api: OpenApi, plurals: Sequence[str], count: int, number: int) -> list[Planted]:
    """Return `count` hostile objects; the same for the same number."""
    found: list[Planted] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        if len(found) < count:
            drawn = data.draw(planted(api, plurals, f"h0x{number}-{len(found)}"))
            assume(len(as_json(drawn.body)) < LARGEST)
            found.append(drawn)

    collect()
    return found


def as_json(value: object) -> bytes:
    """Return JSON as a client sends it."""
    text = json.dumps(value)
    return re.sub(
        f'"{_DEEP}([0-9]+)"', lambda m: '{"a":' * int(m[1]) + "1" + "}" * int(m[1]), text
    ).encode()


def address(plural: str, namespace: str, name: str = "", sub: str = "") -> str:
    """Return the path of a kind's objects, of one object, or of its subresource."""
    valid = VALID_OBJECTS[plural]
    parts = ["/apis" if "/" in valid.version else "/api", valid.version]
    if not valid.cluster:
        parts += ["namespaces", namespace]
    return "/".join(part for part in (*parts, plural, name, sub) if part)
