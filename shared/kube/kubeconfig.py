"""Reads kubeconfig files: which cluster, which user, and where their relative paths start.

Several files are joined as kubectl joins them: of two entries with the same name the first counts,
and so does the first `current-context`.
"""

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from shared.runtime.errors import Rejected

_KINDS: Final = ("clusters", "contexts", "users")


class BadKubeconfigError(ValueError):
    """The files do not say what is needed; the text names what is missing."""


class Section(msgspec.Struct, frozen=True):
    """A cluster or a user."""

    fields: Mapping[str, Any]
    base: Path
    """Where relative paths start: the directory of its file."""

    def path(self, name: str) -> Path | None:
        """Return the file that a field names."""
        value = self.fields.get(name)
        return self.base / Path(str(value)).expanduser() if value else None

    def material(self, name: str) -> Path | bytes | None:
        """Return a certificate or key: what stands inline, else its file."""
        inline = self.fields.get(f"{name}-data")
        if not inline:
            return self.path(name)
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, ValueError, TypeError) as exc:
            raise BadKubeconfigError(f"{name}-data is no base64: {exc}") from exc


class Context(msgspec.Struct, frozen=True):
    """Cluster, user and namespace of one context."""

    cluster: Section
    user: Section
    namespace: str = "default"


def load(paths: str, context: str | None) -> Context:
    """Return a context of the files (joined by `:`), the current one unless another is named.

    Raises Rejected for a file that cannot be read, BadKubeconfigError for what is missing in it.
    """
    found: dict[str, dict[str, Section]] = {kind: {} for kind in _KINDS}
    current = ""
    for path in filter(None, paths.split(os.pathsep)):
        content = _read(path)
        base = Path(path).expanduser().parent.absolute()
        current = current or content.get("current-context") or ""
        for kind in _KINDS:
            for name, fields in _entries(content, kind):
                found[kind].setdefault(name, Section(fields, base))
    if not (context or current):
        raise BadKubeconfigError("current-context is not set")
    chosen = _named(found, "contexts", context or current).fields
    if not chosen.get("user"):
        raise BadKubeconfigError(f"context {context or current!r} names no user of this file")
    return Context(
        cluster=_named(found, "clusters", str(chosen.get("cluster", ""))),
        user=_named(found, "users", str(chosen["user"])),
        namespace=str(chosen.get("namespace") or "default"),
    )


def _read(path: str) -> Mapping[str, Any]:
    try:
        content = msgspec.yaml.decode(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        text = (getattr(exc, "strerror", None) or "cannot be read").lower()
        raise Rejected(f"kubeconfig {path}: {text}", field="kubeconfig") from exc
    except msgspec.DecodeError as exc:
        text = " ".join(str(exc).split())
        raise Rejected(f"kubeconfig {path}: {text}", field="kubeconfig") from exc
    if not isinstance(content, dict):
        text = "is no kubeconfig" if content else "is empty"
        raise Rejected(f"kubeconfig {path}: {text}", field="kubeconfig")
    return content


def _entries(content: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and fields of each cluster, context or user."""
    entries = content.get(kind) or []
    if not isinstance(entries, list):
        raise BadKubeconfigError(f"{kind} is no list")
    for entry in entries:
        if not isinstance(entry, dict) or "name" not in entry:
            raise BadKubeconfigError(f"an entry of {kind} has no name")
        fields = entry.get(kind.removesuffix("s")) or {}
        if not isinstance(fields, dict):
            raise BadKubeconfigError(f"{entry['name']} of {kind} is no mapping")
        yield str(entry["name"]), fields


def _named(found: Mapping[str, Mapping[str, Section]], kind: str, name: str) -> Section:
    section = found[kind].get(name)
    if section is None:
        raise BadKubeconfigError(f"{kind} has no entry of the name {name or '(none)'}")
    return section
