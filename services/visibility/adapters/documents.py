"""The documents about the API itself as bytes, each made once."""

import functools
import hashlib
from typing import Final

import msgspec

from services.visibility.api import discovery, openapi
from services.visibility.api.negotiation import wants_aggregated
from shared.api.visibility import API_VERSION, GROUP

_JSON: Final = "application/json"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document with the mark by which clients know that it is still the same."""

    body: bytes
    etag: str
    content_type: str = _JSON


def _document(value: object, content_type: str = _JSON) -> Document:
    body = msgspec.json.encode(value)
    digest = hashlib.sha256(body).hexdigest().upper()
    return Document(body=body, etag=f'"{digest}"', content_type=content_type)


class Documents:
    """Finds documents by path."""

    def find(self, path: str, accept: str) -> Document | None:
        """Return a document, None when there is none at that path."""
        match path.rstrip("/").split("/")[1:]:
            case ["apis"] if wants_aggregated(accept):
                return self._aggregated
            case ["apis"]:
                return _document(discovery.groups())
            case ["apis", group] if group == GROUP:
                return _document(discovery.group())
            case ["apis", *place] if "/".join(place) == API_VERSION:
                return _document(discovery.resources())
            case ["openapi", "v2"]:
                return self._v2
            case ["openapi", "v3"]:
                return _document(openapi.index(self._v3.etag.strip('"')))
            case ["openapi", "v3", *place] if "/".join(place) == openapi.PLACE:
                return self._v3
        return None

    @functools.cached_property
    def _aggregated(self) -> Document:
        return _document(discovery.aggregated(), discovery.AGGREGATED)

    @functools.cached_property
    def _v2(self) -> Document:
        return _document(openapi.v2())

    @functools.cached_property
    def _v3(self) -> Document:
        return _document(openapi.v3())
