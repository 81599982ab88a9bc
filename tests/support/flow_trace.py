"""Traces one object through the code: which types carry it, and how deep the calls are.

A flow is a list of hand-overs: functions that give the object to another task, queue or process. At
the first call of each with the object among its arguments, `FlowTrace` notes the stack.

- Frames: the functions of `services`, `shared` and `pumice` on such a stack, from the first one
  that has the object in a local variable to the hand-over. What runs these functions (supervisor,
  leader election, the loop) is not part of the flow. The frames of a flow are those of its deepest
  stack.
- Types: the classes whose instances these frames have in a local variable, alone or in a list, that
  contain the object's name and are made for each object: structs, named tuples, and `Delivery`. An
  instance that is a field of another one in the same frame does not count: it is no hop. The parts
  of a service (queues, stores, clients) and its records live longer than an event and do not count.
"""

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from services.controller.adapters.records import JobRecord
from shared.bus.puller import Delivery
from shared.contracts.codec import unpack
from shared.contracts.versions import ContractError

ROOT = Path(__file__).parents[2]
PACKAGES = ("services.", "shared.", "pumice.")
OURS = tuple(f"{ROOT / name.rstrip('.')}/" for name in PACKAGES)
_DEEPEST = 5


class FlowTrace:
    """Notes the stacks of the hand-overs `points` of the object `name`.

    A point is "module:qualified name", with "(text)" behind it if an argument has to contain that.
    """

    def __init__(self, name: str, points: Sequence[str]) -> None:
        self.name = name
        self.stacks: dict[str, list[str]] = {}
        self.types: dict[str, None] = {}
        self._points = {point.partition("(")[0]: point for point in points}
        self._texts = {point: point.partition("(")[2].rstrip(")") for point in points}
        self.names = {re.split("[.:]", place)[-1] for place in self._points}
        """Names of the functions."""

    @property
    def frames(self) -> int:
        """Return the number of functions on the deepest stack."""
        return max(len(stack) for stack in self.stacks.values())

    @staticmethod
    @contextmanager
    def of_all(traces: Iterable["FlowTrace"]) -> Iterator[None]:
        """Trace the calls of this thread during the block."""
        by_name: dict[str, list[FlowTrace]] = {}
        for trace in traces:
            for name in trace.names:
                by_name.setdefault(name, []).append(trace)

        def event(frame: FrameType, kind: str, _: object) -> None:
            if kind == "call":
                for trace in by_name.get(frame.f_code.co_name, ()):
                    trace.called(frame)

        before = sys.getprofile()
        sys.setprofile(event)
        try:
            yield
        finally:
            sys.setprofile(before)

    def report(self) -> str:
        """Return the stacks and types, one line each."""
        lines = [f"{len(self.types)} types: {', '.join(self.types)}"]
        for point, stack in self.stacks.items():
            lines += [f"{len(stack)} frames to {point}", *(f"    {where}" for where in stack)]
        return "\n".join(lines)

    def called(self, frame: FrameType) -> None:
        """Note the stack of a call if it is a hand-over of the object."""
        point = self._points.get(_place(frame), "")
        if not point or point in self.stacks:
            return
        values = list(frame.f_locals.values())
        if not all(any(_has(v, text) for v in values) for text in (self.name, self._texts[point])):
            return
        frames = itertools.dropwhile(lambda each: not _has_local(each, self.name), _stack(frame))
        self.stacks[point] = []
        for each in frames:
            self.stacks[point].append(_place(each))
            carriers = [v for value in each.f_locals.values() for v in _carriers(value, self.name)]
            fields = {id(field) for carrier in carriers for field in _fields(carrier)}
            self.types |= {type(v).__qualname__: None for v in carriers if id(v) not in fields}


def _carriers(value: object, name: str) -> Iterator[object]:
    """Yield `value`, or the items of a list, as far as they carry the object."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for item in value[:100]:
            yield from _carriers(item, name)
    elif _is_ours(value) and _has(value, name):
        yield value


def _fields(carrier: object) -> Iterator[object]:
    """Yield the values of the fields of a carrier, and the items of those that are lists."""
    for name in getattr(carrier, "__struct_fields__", getattr(carrier, "_fields", ())):
        field = getattr(carrier, name, None)
        yield field
        if isinstance(field, list | tuple):
            yield from field


def _stack(frame: FrameType) -> list[FrameType]:
    """Return the frames of our own code from the root to `frame`."""
    stack: list[FrameType] = []
    at: FrameType | None = frame
    while at is not None:
        if at.f_code.co_filename.startswith(OURS):
            stack.append(at)
        at = at.f_back
    return stack[::-1]


def _has_local(frame: FrameType, name: str) -> bool:
    return any(_has(value, name) for value in frame.f_locals.values())


def _place(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    return f"{module}:{frame.f_code.co_qualname}".replace(".<locals>", "")


def _is_ours(value: object) -> bool:
    made = isinstance(value, msgspec.Struct | Delivery) or hasattr(value, "_fields")
    return made and type(value).__module__.startswith(PACKAGES)


def _has(value: object, name: str, depth: int = 0) -> bool:
    """Tell whether a value contains a name."""
    if isinstance(value, str):
        return name in value
    if isinstance(value, bytes):
        return name.encode() in _unpacked(value)
    if isinstance(value, Delivery | JobRecord):
        return _has(value.message if isinstance(value, Delivery) else value.key, name)
    if depth > _DEEPEST:
        return False
    if isinstance(value, Mapping):
        return any(_has(k, name, depth + 1) or _has(v, name, depth + 1) for k, v in value.items())
    if isinstance(value, list | tuple):
        return any(_has(item, name, depth + 1) for item in value[:100])
    if isinstance(value, msgspec.Struct):
        return any(_has(field, name, depth + 1) for field in _fields(value))
    if depth and type(value).__module__.startswith(PACKAGES) and hasattr(value, "__dict__"):
        return any(_has(field, name, depth + 1) for field in vars(value).values())
    return False


def _unpacked(payload: bytes) -> bytes:
    """Return a payload of the bus without its compression; other bytes as they are."""
    try:
        return unpack(payload)
    except ContractError:
        return payload
