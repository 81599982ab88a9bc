"""A recorded cycle as a file: everything that the decision came from, and the decision.

Gzipped lines of JSON, so that `zcat` and `jq` read it too: a header (`Header`), one fact per line
in the order in which facts are folded, and a trailer that says how many there were and what was
decided. A file without its trailer is cut off, and says so. The form has a version of its own; it
holds for the release that wrote it and those that know its number.

What no rule reads and what could be a secret is left out: environments, commands and arguments of
containers, the last applied configuration, values of options called password, token or secret, and
credentials in URLs. Facts never hold Secrets.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import msgspec

from services.scheduler.config import SchedulerConfig
from services.scheduler.decision_settings import DecisionSettings
from services.scheduler.engine.jobs.reservation_timeouts import WaitingGroup
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.state.memory import SchedulerMemory
from shared.contracts.messages import Fact, Op

FORMAT: Final = "pumice-cycle"
VERSION: Final = 1
_REDACTED: Final = "redacted"
_SECRET_NAME: Final = re.compile(r"password|passwd|token|secret|credential", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"//[^/@\s]+@")
_UNREAD: Final = ("env", "envFrom", "command", "args")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SUSPECTS: Final = tuple(f'"{word}"'.encode() for word in (*_UNREAD, _LAST_APPLIED))


class BadDump(ValueError):  # noqa: N818 - reads as the fact it states
    """A file that holds no cycle that can be run again; the message says why."""


class DumpTooLarge(ValueError):  # noqa: N818 - reads as the fact it states
    """A cycle with more facts than a dump may have."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a cycle besides facts."""

    format: str = FORMAT
    version: int = VERSION
    pumice: str
    """Release that wrote the dump."""
    instance: str
    now: float
    """Unix seconds that the cycle went by."""
    cycle: int
    settings: DecisionSettings
    config: SchedulerConfig
    memory: SchedulerMemory = msgspec.field(name="beliefs")
    waiting_groups: dict[str, WaitingGroup] = msgspec.field(name="vigils")


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded cycle."""

    header: Header
    facts: list[Fact]
    plan: Plan


class _Trailer(msgspec.Struct, frozen=True, kw_only=True):
    facts: int
    plan: Plan


class _Stamp(msgspec.Struct):
    format: str = ""
    version: int = 0
    pumice: str = ""


# --- writing -------------------------------------------------------------------------------------


def write(dump: Dump, file: BinaryIO, *, limit_bytes: int) -> None:
    """Write a cycle. Raises `DumpTooLarge` when it has more than `limit_bytes` before gzip."""
    left = limit_bytes
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3, mtime=0) as packed:
        for line in _lines(dump):
            left -= len(line)
            if left < 0:
                raise DumpTooLarge(
                    f"the cycle is larger than {limit_bytes / 2**20:.0f} MiB (--cache-dump-limit)"
                )
            packed.write(line)


def _lines(dump: Dump) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    header = msgspec.structs.replace(dump.header, config=without_secrets(dump.header.config))
    yield encode(header) + b"\n"
    for fact in dump.facts:
        yield encode(msgspec.structs.replace(fact, body=_harmless(fact.body))) + b"\n"
    yield encode(_Trailer(facts=len(dump.facts), plan=dump.plan)) + b"\n"


def without_secrets(config: SchedulerConfig) -> SchedulerConfig:
    """Return a configuration without secret values."""
    return msgspec.convert(_redacted(msgspec.to_builtins(config)), SchedulerConfig)


def _redacted(value: Any) -> Any:  # noqa: ANN401 - free YAML
    if isinstance(value, dict):
        return {
            key: _REDACTED
            if isinstance(item, str) and _SECRET_NAME.search(key)
            else _redacted(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in value]
    return _USER_INFO.sub(f"//{_REDACTED}@", value) if isinstance(value, str) else value


def _harmless(body: msgspec.Raw) -> msgspec.Raw:
    """Return a body without fields that no rule reads or that often hold secrets."""
    raw = bytes(body)
    if not any(word in raw for word in _SUSPECTS):
        return body
    obj = msgspec.json.decode(raw)
    obj.get("metadata", {}).get("annotations", {}).pop(_LAST_APPLIED, None)
    spec = obj.get("spec", {})
    for container in (*spec.get("containers", []), *spec.get("initContainers", [])):
        for name in _UNREAD:
            container.pop(name, None)
    return msgspec.Raw(msgspec.json.encode(obj))


# --- reading -------------------------------------------------------------------------------------


def read(file: BinaryIO) -> Dump:
    """Return the cycle in a file. Raises `BadDump`."""
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as packed:
            return _parse(iter(packed))
    except gzip.BadGzipFile as error:
        raise BadDump("this is no dump of a cycle: it is not gzipped") from error
    except (EOFError, zlib.error) as error:
        raise BadDump(f"the dump is cut off or damaged: {error}") from error


def _parse(lines: Iterator[bytes]) -> Dump:
    header = _header(next(lines, b""))
    facts: list[Fact] = []
    decoder = msgspec.json.Decoder(Fact)
    last = b""
    for line in lines:
        if last:
            facts.append(_decode(decoder, last, f"line {len(facts) + 2}"))
        last = line
    trailer = _decode(msgspec.json.Decoder(_Trailer), last, "the last line")
    if trailer.facts != len(facts):
        raise BadDump(f"the dump is damaged: {len(facts)} facts of {trailer.facts}")
    return Dump(header=header, facts=facts, plan=trailer.plan)


def _header(line: bytes) -> Header:
    try:
        stamp = msgspec.json.decode(line, type=_Stamp)
    except msgspec.DecodeError as error:
        raise BadDump("this is no dump of a cycle: the first line is not its header") from error
    if stamp.format != FORMAT:
        raise BadDump("this is no dump of a cycle: the first line is not its header")
    if stamp.version != VERSION:
        raise BadDump(
            f"the dump has version {stamp.version} (written by Pumice {stamp.pumice}), "
            f"this release reads version {VERSION}"
        )
    header: Header = _decode(msgspec.json.Decoder(Header), line, "the first line")
    return header


def _decode(decoder: msgspec.json.Decoder[Any], line: bytes, place: str) -> Any:  # noqa: ANN401
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        raise BadDump(f"the dump is cut off or damaged in {place}: {error}") from error


# --- facts ---------------------------------------------------------------------------------------


def latest(facts: Iterable[Fact]) -> list[Fact]:
    """Return the last fact of each object in the order of those, without objects that are gone."""
    by_object: dict[tuple[str, str], Fact] = {}
    for fact in facts:
        by_object.pop((fact.kind, fact.key), None)
        by_object[fact.kind, fact.key] = fact
    return [fact for fact in by_object.values() if fact.op is Op.PUT]


class Recording:
    """The facts of one cycle, from the request to the cycle that is dumped; others pay nothing.

    The cluster state keeps what rules read, not the objects. STATE has the last fact of every
    object, but goes on while it is read. So a recording has two halves: STATE read once more from
    its beginning, and the facts that cycles fold after the request. Once they have folded as far as
    was read, the last fact of each object over both halves is exactly what the cluster state was
    made of.
    """

    def __init__(self, folded_seq: int) -> None:
        """Begin when facts up to `folded_seq` of STATE have been folded."""
        self._folded_seq = folded_seq
        self._read: list[Fact] | None = None
        self._read_seq = 0
        self._folded: list[Fact] = []
        self.void = ""
        """Why it can no longer be completed; empty while it can."""

    def folded(self, facts: Sequence[Fact], last_seq: int, *, anew: bool) -> None:
        """Note what a cycle folded, up to `last_seq`; `anew` when STATE began from nothing."""
        if anew:
            self.void = "STATE began anew meanwhile"
        self._folded += facts
        self._folded_seq = max(self._folded_seq, last_seq)

    def read(self, facts: list[Fact], last_seq: int) -> None:
        """Note the facts of STATE; `last_seq` is the sequence of the last one."""
        self._read = facts
        self._read_seq = last_seq

    @property
    def is_complete(self) -> bool:
        """Whether the next cycle's facts are known."""
        return not self.void and self._read is not None and self._folded_seq >= self._read_seq

    def facts(self) -> list[Fact]:
        """Return the facts that the cluster state holds, in the order in which they were folded."""
        return latest([*(self._read or ()), *self._folded])
