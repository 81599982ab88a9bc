"""Which kinds there are: the built-in ones (from `builtin.json`) and those of CRDs.

`builtin.json` is written by `tools.write_api_schemas` from the real server, so that names, scopes,
subresources and fields are the real ones.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

BUILTIN: Final = Path(__file__).with_name("builtin.json")
REFERENCE: Final = "#/components/schemas/"
UNSERVED: Final = frozenset(
    ("attach", "exec", "log", "portforward", "proxy", "ephemeralcontainers", "resize", "token")
)
"""Subresources that need a kubelet or an issuer of tokens."""
_GENERATION: Final = frozenset(
    (
        "pods",
        "podtemplates",
        "replicasets",
        "statefulsets",
        "daemonsets",
        "jobs",
        "poddisruptionbudgets",
        "priorityclasses",
        "networkpolicies",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    )
)


class ExtraColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One additional printer column of a CRD."""

    name: str
    type: str
    path: str = msgspec.field(name="jsonPath")
    description: str = ""
    priority: int = 0
    format: str = ""


class ApiResource(msgspec.Struct, frozen=True, kw_only=True):
    """One kind in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    schema: Mapping[str, Any]
    """Structural schema; references start with `REFERENCE` and are found in `builtin_schemas`."""
    custom: bool = False
    columns: tuple[ExtraColumn, ...] = ()
    served: bool = True
    """False: listed in discovery, so that clients find it, and refused with 501."""

    @property
    def id(self) -> str:
        """The name of its collection in the store, the same for all versions of a kind."""
        return f"{self.plural}.{self.group}"

    @property
    def qualified(self) -> str:
        """Return the plural with the group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        """Whether the status is written apart from the rest."""
        return "status" in self.subresources

    @property
    def has_generation(self) -> bool:
        """Whether `metadata.generation` counts changes of the spec."""
        return self.custom or self.plural in _GENERATION


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(BUILTIN.read_text("utf-8"))
    return document


def builtin_schemas() -> Mapping[str, Any]:
    """Return the schemas of built-in kinds and their parts, by name."""
    schemas: dict[str, Any] = _document()["schemas"]
    return schemas


def server_version() -> Mapping[str, str]:
    """Return the body of `/version`: the version of the server that this one imitates."""
    version: dict[str, str] = _document()["version"]
    return version


def builtin() -> Iterator[ApiResource]:
    """Yield the built-in kinds."""
    for entry in _document()["resources"]:
        yield ApiResource(
            **{
                **entry,
                "short": tuple(entry["short"]),
                "categories": tuple(entry["categories"]),
                "subresources": tuple(s for s in entry["subresources"] if s not in UNSERVED),
                "schema": {"$ref": REFERENCE + entry["schema"]},
            }
        )


@cache
def unserved() -> tuple[ApiResource, ...]:
    """Return the kinds of Kubernetes that are named and not served."""
    return tuple(
        ApiResource(
            **{
                **entry,
                "short": tuple(entry["short"]),
                "schema": {"type": "object"},
                "served": False,
            }
        )
        for entry in _document()["elsewhere"]
    )


def of_crd(crd: Mapping[str, Any]) -> Iterator[ApiResource]:
    """Yield the kinds that a CRD defines, one per served version."""
    spec = crd["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        yield ApiResource(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            singular=names.get("singular") or names["kind"].lower(),
            short=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            namespaced=spec["scope"] == "Namespaced",
            subresources=tuple(sorted(version.get("subresources") or ())),
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"},
            custom=True,
            columns=msgspec.convert(
                version.get("additionalPrinterColumns") or (), tuple[ExtraColumn, ...]
            ),
        )


class Catalogue:
    """All kinds by where they are served; CRDs come and go."""

    def __init__(self, resources: Iterable[ApiResource]) -> None:
        self._by_place = {(r.group, r.version, r.plural): r for r in resources}

    def find(self, group: str, version: str, plural: str) -> ApiResource | None:
        """Return the kind that is served at a place."""
        return self._by_place.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> ApiResource | None:
        """Return the kind that an object or an owner reference names."""
        return next(
            (r for r in self._by_place.values() if r.api_version == api_version and r.kind == kind),
            None,
        )

    def by_id(self, resource_id: str) -> ApiResource | None:
        """Return some version of the kind whose objects are kept under an id."""
        return next((r for r in self._by_place.values() if r.id == resource_id), None)

    def all(self) -> list[ApiResource]:
        """Return all kinds, core group first, then by group, version and name."""
        return [self._by_place[place] for place in sorted(self._by_place)]

    def named(self) -> list[ApiResource]:
        """Return all kinds, and those that are named and not served."""
        others = ((r.group, r.version, r.plural) for r in unserved())
        by_place = dict(zip(others, unserved(), strict=True)) | self._by_place
        return [by_place[place] for place in sorted(by_place)]

    def groups(self) -> list[tuple[str, list[str]]]:
        """Return the named groups with their versions."""
        found: dict[str, list[str]] = {}
        for resource in self.named():
            if resource.group:
                versions = found.setdefault(resource.group, [])
                if resource.version not in versions:
                    versions.append(resource.version)
        return list(found.items())

    def replace(self, crd: Mapping[str, Any], *, served: bool) -> None:
        """Take over the kinds of a CRD; `served=False` removes them."""
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for place in [p for p in self._by_place if p[0] == group and p[2] == plural]:
            del self._by_place[place]
        if served:
            for resource in of_crd(crd):
                self._by_place[resource.group, resource.version, resource.plural] = resource
