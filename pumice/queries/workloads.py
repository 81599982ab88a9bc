"""Workloads at the top of owner chains, such as a RayJob, a Deployment or a Workflow.

Visibility returns the controller of a PodGroup. The owners above it are looked up here, by the
client, with its user's credentials: an owner is shown only if its user may get it, of any
kind, and no service needs the right to read all kinds. Only metadata is requested. An owner
counts if it has the uid of the reference, since a reference may name any object.
"""

import asyncio
import contextlib
import difflib
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from shared.api.meta import ObjectMeta
from shared.api.visibility import ObjectRef, PendingJob, RunningJob
from shared.kube.owners import OwnerReader
from shared.kube.wire import METADATA_ONLY, Request
from shared.runtime.errors import PumiceError
from shared.runtime.tasks import TaskGroup

_DEPTH_MAX: Final = 8
_LOOKUPS_MAX: Final = 100
"""Owners of one result that are looked up; the others show their PodGroup."""
_AT_ONCE: Final = 8
_LOOKUPS_S: Final = 5.0
"""Longest wait for the owners of one result."""
_KEPT_S: Final = 60.0
_KEPT_MAX: Final = 10_000
_HAS_OWNER: Final = b'"owner":'


class MetadataTransport(Protocol):
    """Requests to the API server with the user's credentials."""

    async def exchange(self, request: Request) -> bytes:
        """Return the body of a response. Raises PumiceError."""


class _Owner(msgspec.Struct, frozen=True):
    # not shared.kube.decode.PartialObject, whose import a command that prints a list cannot afford
    metadata: ObjectMeta


class OwnerChains:
    """Looks up chains of owners; results are cached for a minute."""

    def __init__(self, transport: MetadataTransport) -> None:
        def get(path: str, accept: str) -> Awaitable[bytes]:
            return transport.exchange(Request(method="GET", path=path, accept=accept))

        self._reader = OwnerReader(get)
        self._found: dict[str, tuple[float, ObjectMeta | None]] = {}
        """Uid → until when it counts, and the owner's metadata; None if it cannot be had."""

    async def shown(self, raw: bytes) -> bytes:
        """Return a result of visibility in which each `owner` is the top of its chain."""
        if _HAS_OWNER not in raw:
            return raw
        whole = msgspec.json.decode(raw)
        entries = list(_with_owner(whole))
        refs = [msgspec.convert(entry["owner"], ObjectRef) for entry in entries]
        chains = await self._chains(refs)
        for entry, ref in zip(entries, refs, strict=True):
            if chain := chains.get(ref.uid):
                entry["owner"] = msgspec.to_builtins(chain[-1])
            elif ref.api_version:
                entry["owner"] = _lower(entry, ref)
        return msgspec.json.encode(whole)

    async def owned_by(
        self, word: str, name: str, candidates: Sequence[tuple[ObjectRef, str]]
    ) -> list[str]:
        """Return those of the candidates (owner and any text) that a workload owns.

        `word` is the kind, plural or short name, with or without the group: as kubectl takes it.
        """
        likely = sorted(candidates, key=lambda each: not each[0].name.startswith(name))
        chains = await self._chains([ref for ref, _ in likely])
        found = []
        for ref, text in likely:
            links = [link for link in chains[ref.uid] if link.name == name]
            if any([await self._is_kind(link, word) for link in links]):
                found.append(text)
        return found

    async def near(self, word: str, name: str, owners: Iterable[ObjectRef]) -> list[str]:
        """Return workloads above some owners with a similar name or kind, such as `rayjob/train`.

        `word` is as in `owned_by`. Names count alone where there are workloads of the kind.
        """
        chains = await self._chains(owners)
        links = [link for chain in chains.values() for link in chain]
        alike = {link.name for link in links if await self._is_kind(link, word)}
        if alike:
            return [f"{word}/{each}" for each in difflib.get_close_matches(name, sorted(alike))]
        titles = {f"{link.kind.lower()}/{link.name}" for link in links}
        return difflib.get_close_matches(f"{word}/{name}".lower(), sorted(titles))

    async def _is_kind(self, ref: ObjectRef, word: str) -> bool:
        group = ref.api_version.rpartition("/")[0]
        short = word.lower().removesuffix(f".{group}")
        resource = await self._reader.resource(ref.api_version, ref.kind)  # read a moment ago
        return resource is not None and short in {
            ref.kind.lower(),
            resource.name,
            *resource.short_names,
        }

    async def _chains(self, refs: Iterable[ObjectRef]) -> dict[str, list[ObjectRef]]:
        """Return chains by uid of their first owner, as far as they are found in time."""
        asked = {ref.uid: ref for ref in refs if ref.api_version and ref.uid}
        chains: dict[str, list[ObjectRef]] = {ref.uid: [] for ref in refs}
        places = asyncio.Semaphore(_AT_ONCE)

        async def climb(ref: ObjectRef) -> None:
            async with places:
                chains[ref.uid] = await self._chain(ref)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOKUPS_S), TaskGroup() as tasks:
                for ref in list(asked.values())[:_LOOKUPS_MAX]:
                    tasks.create_task(climb(ref), name=f"owners-of-{ref.name}")
        return chains

    async def _chain(self, ref: ObjectRef) -> list[ObjectRef]:
        """Return a reference and its controllers, from the bottom, as far as the user may get."""
        chain: list[ObjectRef] = []
        while len(chain) < _DEPTH_MAX and (found := await self._metadata(ref)) is not None:
            chain.append(ref)
            above = found.controller
            if above is None:
                break
            ref = ObjectRef(
                api_version=above.api_version,
                kind=above.kind,
                namespace=ref.namespace,
                name=above.name,
                uid=above.uid,
            )
        return chain

    async def _metadata(self, ref: ObjectRef) -> ObjectMeta | None:
        now = asyncio.get_running_loop().time()
        until, found = self._found.get(ref.uid, (now, None))
        if until <= now:
            found = await self._read(ref)
            if len(self._found) >= _KEPT_MAX:
                self._found.clear()
            self._found[ref.uid] = (now + _KEPT_S, found)
        return found

    async def _read(self, ref: ObjectRef) -> ObjectMeta | None:
        """Return an owner's metadata, None if it is not there or may not be read."""
        try:
            raw = await self._reader.read(
                ref.api_version, ref.kind, ref.namespace, ref.name, accept=METADATA_ONLY
            )
            metadata = msgspec.json.decode(raw, type=_Owner).metadata if raw else None
        except (PumiceError, msgspec.MsgspecError):
            return None
        return metadata if metadata is not None and metadata.uid == ref.uid else None


def title(job: PendingJob | RunningJob) -> str:
    """Return what users call a job: `rayjob/train`, or its name if a Job of Volcano made it."""
    kind = "PodGroup" if job.metadata.name == job.pod_group else "Job"
    return called(ObjectRef(kind=kind, name=job.metadata.name), job.owner)


def called(job: ObjectRef, owner: ObjectRef | None) -> str:
    """Return what users call a Job, or a PodGroup that an owner controls."""
    if job.kind != "PodGroup" or owner is None or owner.kind == "PodGroup":
        return job.name
    return f"{owner.kind.lower()}/{owner.name}"


def _with_owner(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any value of JSON
    """Yield the objects of a result that name an owner: the result, its items and holders."""
    if value.get("owner"):
        yield value
    for inner in (*(value.get("items") or ()), *(value.get("holders") or ())):
        yield from _with_owner(inner)


def _lower(entry: dict[str, Any], ref: ObjectRef) -> dict[str, Any]:
    """Return the Job or PodGroup of an entry whose owners the user may not get."""
    if ref.api_version.startswith("batch.volcano.sh/"):
        return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}
    name = entry["job"]["name"] if "job" in entry else entry["metadata"]["name"]
    return {
        "kind": "PodGroup",
        "namespace": ref.namespace,
        "name": entry.get("podGroup") or name,
    }
