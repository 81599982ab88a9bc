"""The documents about the API itself as bytes, each made once."""

import functools
import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from services.visibility.api import discovery, openapi
from services.visibility.api.negotiation import wants_aggregated
from services.visibility.api.statuses import Json
from shared.api.visibility import API_VERSION, GROUP

_JSON: Final = "application/json"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document with the mark by which clients know that it is still the same."""

    body: bytes
    etag: str
    content_type: str = _JSON


def find(path: str, accept: str) -> Document | None:
    """Return the document at a path, None when there is none."""
    match path.rstrip("/").split("/")[1:]:
        case ["apis"] if wants_aggregated(accept):
            return _document(discovery.aggregated, discovery.AGGREGATED)
        case ["apis"]:
            return _document(discovery.groups)
        case ["apis", group] if group == GROUP:
            return _document(discovery.group)
        case ["apis", *place] if "/".join(place) == API_VERSION:
            return _document(discovery.resources)
        case ["openapi", "v2"]:
            return _document(openapi.v2)
        case ["openapi", "v3"]:
            return _document(_index)
        case ["openapi", "v3", *place] if "/".join(place) == openapi.PLACE:
            return _document(openapi.v3)
    return None


def _index() -> Json:
    return openapi.index(_document(openapi.v3).etag.strip('"'))


@functools.cache
def _document(make: Callable[[], Json], content_type: str = _JSON) -> Document:
    body = msgspec.json.encode(make())
    digest = hashlib.sha256(body).hexdigest().upper()
    return Document(body=body, etag=f'"{digest}"', content_type=content_type)
