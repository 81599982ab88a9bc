"""The commands of `vcctl jobflow` and `vcctl jobtemplate`, whose objects come from files."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pumice.vcctl import documents, tables
from pumice.vcctl.cluster import ClusterClient, Object
from pumice.vcctl.flags import CommandFailure, Value, text
from pumice.vcctl.shapes import shaped
from pumice.vcctl.tables import meta
from shared.api.kinds import JOBFLOW, JOBTEMPLATE, Kind

_USUAL: Final = "default"


class Declared:
    """The commands of one kind; `spoken` is its name in messages, `table` prints a list of it."""

    def __init__(
        self, kind: Kind, spoken: str, table: Callable[[Sequence[Object], float], str]
    ) -> None:
        self._kind = kind
        self._spoken = spoken
        self._table = table

    async def create(self, cluster: ClusterClient, values: Mapping[str, Value]) -> str:
        """Create the objects of a file; one that is refused does not keep the others away."""
        kind = self._kind
        for item in _of_file(text(values, "file")):
            namespace = meta(item, "namespace") or _USUAL
            try:
                whole = shaped(_placed(item, namespace), kind.kind)
                made = await cluster.create(kind, namespace, whole)
            except CommandFailure as failure:
                _print(f"Failed to create {kind.kind}: {failure}")
            else:
                _print(f"Created {kind.kind}: {namespace}/{meta(made, 'name')}")
        return ""

    async def show(self, cluster: ClusterClient, values: Mapping[str, Value]) -> str:
        """List the objects of a namespace, or of all."""
        namespace = "" if values.get("all-namespaces") else text(values, "namespace")
        return self._table(await cluster.items(self._kind, namespace), cluster.now_s)

    async def get(self, cluster: ClusterClient, values: Mapping[str, Value]) -> str:
        """Show the object that a flag names. Raises CommandFailure without a name."""
        name = text(values, "name")
        if not name:
            raise CommandFailure(f"name is mandatory to get the particular {self._spoken} details")
        one = await cluster.get(self._kind, text(values, "namespace"), name)
        return self._table([one], cluster.now_s)

    async def delete(self, cluster: ClusterClient, values: Mapping[str, Value]) -> str:
        """Delete the objects that a file names, or else the one that a flag names.

        Raises CommandFailure.
        """
        kind = self._kind
        if file := text(values, "file"):
            for item in _of_file(file):
                await _delete(cluster, kind, meta(item, "namespace") or _USUAL, meta(item, "name"))
            return ""
        namespace, name = text(values, "namespace"), text(values, "name")
        if not name:
            raise CommandFailure(f"{self._spoken} name must be specified")
        await cluster.delete(kind, namespace, name)
        return f"Deleted {kind.kind}: {namespace}/{name}\n"

    async def describe(self, cluster: ClusterClient, values: Mapping[str, Value]) -> str:
        """Return one object, or all of a namespace, as documents."""
        namespace, name = text(values, "namespace"), text(values, "name")
        items = [await cluster.get(self._kind, namespace, name)] if name else []
        items = items or await cluster.items(self._kind, namespace)
        return _documents(items, self._kind, text(values, "format"))


FLOWS: Final = Declared(JOBFLOW, "jobflow", tables.flows)
TEMPLATES: Final = Declared(JOBTEMPLATE, "job template", lambda items, _: tables.templates(items))


def _documents(items: list[Object], kind: Kind, form: str) -> str:
    """Return objects behind each other, two empty lines between them."""
    writers = {"yaml": documents.as_yaml, "json": documents.as_json}
    if form not in writers:
        return "\n\n".join([f"Unsupported format: {form}"] * len(items))
    return "\n\n".join(writers[form](item, kind.kind) for item in items)


async def _delete(cluster: ClusterClient, kind: Kind, namespace: str, name: str) -> None:
    try:
        await cluster.delete(kind, namespace, name)
    except CommandFailure as failure:
        _print(f"Failed to delete {kind.kind}: {failure}")
    else:
        _print(f"Deleted {kind.kind}: {namespace}/{name}")


def _of_file(file: str) -> Iterator[Object]:
    """Yield the objects of a file. Raises CommandFailure."""
    try:
        content = Path(file).read_text(encoding="utf-8") if file else None
    except OSError as error:
        raise CommandFailure(f"open {file}: {(error.strerror or '').lower()}") from error
    if content is None:
        raise CommandFailure("open : no such file or directory")
    yield from documents.each(content)


def _placed(item: Object, namespace: str) -> Object:
    return {**item, "metadata": {**(item.get("metadata") or {}), "namespace": namespace}}


def _print(line: str) -> None:
    """Print at once: what comes later in the file may end the command."""
    sys.stdout.write(f"{line}\n")
