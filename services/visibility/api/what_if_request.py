"""Reads the query of a what-if, and refuses one that is larger than a person's would be.

What a query costs is known before it is taken apart: its bytes, and how much its pods and nodes
come to when each is made from its template. What it costs beyond that, its process bears
(`adapters/forked`).
"""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from services.visibility.api import openapi
from services.visibility.api.requests import ServedTarget
from services.visibility.api.statuses import BAD_REQUEST, TOO_LARGE, ApiFailure, invalid
from shared.api.base import Json, View, describe_decode_error, without_nulls
from shared.api.batch import TaskSpec
from shared.api.nesting import is_too_deep
from shared.api.visibility import API_VERSION
from shared.api.whatifs import WhatIf, WhatIfSpec

T = TypeVar("T", bound=View)

BYTES_MAX: Final = 512 * 1024
"""Bytes of one query; an object of the API server has three times as many at most."""
MADE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all pods and nodes of a query, each as long as its template."""
CONTAINERS_MAX: Final = 100_000
"""Containers of all pods of a query."""
WARNINGS_MAX: Final = 20
"""Unknown fields that are named to the author of a query."""
_LETTERS_MAX: Final = 256


class _Pod(msgspec.Struct, rename="camel"):
    containers: list[msgspec.Raw] | None = None
    init_containers: list[msgspec.Raw] | None = None


class _Template(msgspec.Struct):
    spec: _Pod | None = None


_TEMPLATE: Final = msgspec.json.Decoder(_Template)


def read(body: bytes) -> tuple[Json, WhatIf]:
    """Return a what-if as it was sent, and as its type. Raises ApiFailure (400, 413, 422)."""
    raw, query = read_object(body, WhatIf)
    _check_size(query.spec)
    return raw, query


def read_object(body: bytes, kind: type[T]) -> tuple[Json, T]:
    """Return an object to create as it was sent, and as its type. Raises ApiFailure (400, 413)."""
    name = kind.__name__
    if len(body) > BYTES_MAX:
        text = f"the query is larger than {BYTES_MAX} bytes: ask about what matters only"
        raise ApiFailure(TOO_LARGE, text)
    if is_too_deep(body):
        raise ApiFailure(BAD_REQUEST, "the object is nested too deeply")
    try:
        raw: Json = without_nulls(msgspec.json.decode(body, type=Json))
        query = msgspec.json.decode(msgspec.json.encode(raw), type=kind)
    except msgspec.DecodeError as error:
        raise ApiFailure(BAD_REQUEST, f"no {name}: {describe_decode_error(error)}") from error
    except UnicodeError as error:
        raise ApiFailure(BAD_REQUEST, f"no {name}: the body is not UTF-8") from error
    head = (raw.get("apiVersion", API_VERSION), raw.get("kind", name))
    if head != (API_VERSION, name):
        raise ApiFailure(
            BAD_REQUEST, f"{head[0]} {head[1]} is not taken here: send {API_VERSION} {name}"
        )
    return raw, query


def _check_size(spec: WhatIfSpec) -> None:
    """Refuse a query whose pods or nodes are too many or too large. Raises ApiFailure (422)."""
    if spec.job is not None:
        tasks = spec.job.spec.tasks
        field = "spec.job.spec.tasks"
        containers = sum(max(0, task.replicas) * _containers(task) for task in tasks)
        if containers > CONTAINERS_MAX:
            text = f"{containers} containers are too many for one query: {CONTAINERS_MAX}"
            raise invalid("WhatIf", field, f"{text} at most")
        made = sum(max(0, task.replicas) * len(bytes(task.template)) for task in tasks)
        _check_made(made, field, "pods")
    nodes = (
        max(0, added.count) * len(msgspec.json.encode(added.template))
        for added in spec.add_nodes
        if added.template is not None
    )
    _check_made(sum(nodes), "spec.addNodes", "nodes")
    if spec.job is not None:
        pods = sum(max(0, task.replicas) for task in spec.job.spec.tasks)
        shapes = sum(len(msgspec.json.encode(shape)) for shape in spec.shapes)
        _check_made(shapes * pods, "spec.shapes", "nodes")


def _check_made(made: int, field: str, what: str) -> None:
    if made > MADE_BYTES_MAX:
        text = f"the templates of all {what} come to {made >> 20} MiB: {MADE_BYTES_MAX >> 20} MiB"
        raise invalid("WhatIf", field, f"{text} at most")


def _containers(task: TaskSpec) -> int:
    """Return how many containers a pod of a task has, as far as its template can be read."""
    try:
        pod = _TEMPLATE.decode(task.template).spec
    except msgspec.DecodeError:
        return 0  # the rules for templates say what is wrong with it
    return len(pod.containers or ()) + len(pod.init_containers or ()) if pod else 0


def unknown_fields(raw: Json, target: ServedTarget) -> tuple[str, ...]:
    """Return warnings about fields that are not known.

    Raises ApiFailure (400) if that is requested, and for a name that no header can hold.
    """
    validation = target.query.get("fieldValidation", "Warn")
    if validation == "Ignore":
        return ()
    paths = list(openapi.unknown_fields(raw, openapi.schema(target.resource)))
    for path in paths:
        if not path.isprintable():
            raise ApiFailure(
                BAD_REQUEST, f"unknown field {_shown(path)}: its name has a control character"
            )
    found = [f"unknown field {_shown(path)}" for path in paths[:WARNINGS_MAX]]
    if len(paths) > WARNINGS_MAX:
        found.append(f"{len(paths) - WARNINGS_MAX} more unknown fields")
    if found and validation == "Strict":
        raise ApiFailure(BAD_REQUEST, f"strict decoding error: {', '.join(found)}")
    return tuple(found)


def _shown(path: str) -> str:
    """Return a path in quotes, of bounded length and without control characters."""
    return f'"{"".join(_letters(path[:_LETTERS_MAX]))}"'


def _letters(text: str) -> Iterator[str]:
    for letter in text:
        yield letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
