"""Draws objects of any kind from its view: right in form, as hostile as can be in content.

Every field of the view is drawn, by its type and by its name: amounts beyond all measure, negative
counts, endless and foreign texts, references to nothing or to each other in rings, operators that
are none. Bounds that the view states are kept, for the API server keeps them; whatever else it
would refuse is drawn as well.
"""

import re
from functools import cache
from typing import Any

import msgspec.inspect as mi
from hypothesis import strategies as st

from shared.api import keys, kinds

QUANTITIES = [
    "0", "1", "2", "-1", "100m", "1Gi", "4Ei", "8Ei", "9223372036854775807", "-8Ei", "1e30", "1.5",
    "0.0000000001", "1n", "9" * 90, ".5", "5.", "1e-5",
]  # fmt: skip
UNREADABLE = ["", "x", "1Zi", "NaN", "+Inf", "1e9999", "9" * 200]
NAMES = ["a", "b", "ns/a", "default", "other", "root", "n1", "ghost", "ns", "a-1", "a-999999999999"]
STRANGE = [
    "", " ", "/", "//", ":", ",", "=", "a=b,c", "[", "(", "*", ".*", "^(a+)+$", "{}", "[]", "null",
    "true", "-1", "0", "1", "99999999999999999999", "1e400", "nan", "١٢", "\N{PILE OF POO}", "²",
    "\n\t", "x" * 300, "y" * 20_000, "0,1,,x", "GPU-1,2,3,4:GPU", "10s", "-5m", "2026-13-45",
    "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "a/b/c/d", "root/a/b",
]  # fmt: skip
WORDS = {
    "operator": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "in", "", "Odd"],
    "effect": ["NoSchedule", "PreferNoSchedule", "NoExecute", "", "Odd"],
    "whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway", "", "Odd"],
    "nodeAffinityPolicy": ["Honor", "Ignore", "Odd"],
    "nodeTaintsPolicy": ["Honor", "Ignore", "Odd"],
    "topologyKey": ["", "kubernetes.io/hostname", "zone", "x" * 300],
    "key": ["", "zone", "kubernetes.io/hostname", "metadata.name", "a/b/c"],
    "phase": ["", "Pending", "Running", "Succeeded", "Failed", "Unknown", "Inqueue", "Odd"],
    "queue": ["default", "other", "ghost", "", "root"],
    "parent": ["root", "default", "other", "a", "b", "ghost", ""],
    "nodeName": ["", "", "n1", "ghost"],
    "schedulerName": ["volcano", "volcano", "default-scheduler"],
    "restartPolicy": ["Always", "OnFailure", "Never", "Odd"],
    "mode": ["hard", "soft", "Filesystem", "Odd"],
    "volumeBindingMode": ["Immediate", "WaitForFirstConsumer", "Odd"],
    "preemptionPolicy": ["Never", "PreemptLowerPriority", "Odd"],
    "protocol": ["TCP", "UDP", "Odd"],
    "type": ["exact", "PodScheduled", "Unschedulable", "Odd", "Ready"],
    "namespace": ["ns"],
}
RESOURCES = [
    "cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu",
    "example.com/x",
    "volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-memory-percentage",
    "huawei.com/Ascend310P", "huawei.com/Ascend310P-memory", "huawei.com/Ascend310P-core",
    "huawei.com/npu-core",
    "requests.cpu", "count/pods", "attachable-volumes-csi", "storage", "", "/", "x" * 300,
]  # fmt: skip
_AMOUNTS = {
    "requests", "limits", "capacity", "allocatable", "allocated", "deserved", "capability", "hard",
    "resource", "minResources", "overhead", "allocatedResources", "used", "resReserved",
}  # fmt: skip
ANNOTATIONS = sorted(
    {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    | {"hami.io/node-register-Ascend310P", "hami.io/Ascend310P-devices-allocated"}
    | {"baseDeviceInfos", "huawei.com/npu-core", "accelerator", "servertype"}
)
NUMBERS = [0, 1, -1, 2, 5, 100, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63)]
TEXT = st.sampled_from(STRANGE) | st.sampled_from(NAMES) | st.text(max_size=12)


@cache
def objects(token: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return JSON documents of a kind; their names are drawn from few."""
    return _of(mi.type_info(kinds.KINDS[token].type), token, 0)


SIMPLE: dict[type[mi.Type], st.SearchStrategy[Any]] = {
    mi.FloatType: st.sampled_from([0.0, -1.5, 1e300, 1e-300]),
    mi.BoolType: st.booleans(),
    mi.AnyType: st.sampled_from([{}, {"a": [1, None, "x"]}, [], "x", 7, None]),
    mi.RawType: st.sampled_from([{}, {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}]),
}


def _of(kind: mi.Type, field: str, depth: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, mi.Metadata):
        return _of(kind.type, field, depth)
    if isinstance(kind, mi.StructType):
        return _struct(kind, depth)
    if isinstance(kind, mi.UnionType):
        parts = [t for t in kind.types if not isinstance(t, mi.NoneType)]
        return st.one_of(*(_of(part, field, depth) for part in parts))
    if isinstance(kind, mi.VarTupleType | mi.ListType):
        least = getattr(kind, "min_length", None) or 0
        most = max(least, 1 if depth > 3 else 3)
        return st.lists(_of(kind.item_type, field, depth), min_size=least, max_size=most)
    if isinstance(kind, mi.DictType):
        return _mapping(kind, field, depth)
    if isinstance(kind, mi.EnumType):
        return st.sampled_from([member.value for member in kind.cls])
    if isinstance(kind, mi.IntType):
        return _number(kind)
    if (drawn := SIMPLE.get(type(kind))) is not None:
        return drawn
    if isinstance(kind, mi.StrType):
        return _within(_text(field), kind)
    raise NotImplementedError(f"{field}: {kind}")


def _number(kind: mi.IntType) -> st.SearchStrategy[int]:
    least = kind.ge if kind.ge is not None else (kind.gt + 1 if kind.gt is not None else None)
    most = kind.le if kind.le is not None else (kind.lt - 1 if kind.lt is not None else None)
    fits = [n for n in (*NUMBERS, 3, 7) if (least is None or n >= least)]
    return st.sampled_from([n for n in fits if most is None or n <= most])


def _within(drawn: st.SearchStrategy[str], kind: mi.StrType) -> st.SearchStrategy[str]:
    if kind.pattern is None and kind.max_length is None and kind.min_length is None:
        return drawn
    form = re.compile(kind.pattern or "")
    fixed = [*NAMES, *STRANGE, *QUANTITIES, *(word for words in WORDS.values() for word in words)]
    fits = [
        text
        for text in dict.fromkeys(fixed)
        if form.search(text)
        and len(text) <= (kind.max_length or len(text))
        and len(text) >= (kind.min_length or 0)
    ]
    return st.sampled_from(fits)


def _text(field: str) -> st.SearchStrategy[str]:
    if field in _AMOUNTS or field in {"storage", "minCapacity"}:
        return _amount()
    if field in WORDS:
        return st.sampled_from(WORDS[field]) | TEXT
    return TEXT


def _amount() -> st.SearchStrategy[str]:
    seldom = st.integers(0, 60)
    return seldom.flatmap(lambda n: st.sampled_from(QUANTITIES if n else UNREADABLE))


def text_of(kind: mi.Type) -> mi.StrType:
    """Return the text among what a value may be."""
    if isinstance(kind, mi.Metadata):
        return text_of(kind.type)
    if isinstance(kind, mi.UnionType):
        return next(text_of(part) for part in kind.types if not isinstance(part, mi.IntType))
    return kind if isinstance(kind, mi.StrType) else mi.StrType()


def _mapping(kind: mi.DictType, field: str, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    names: st.SearchStrategy[str] = TEXT
    values = _of(kind.value_type, field, depth + 1)
    if field in _AMOUNTS:
        names = st.sampled_from(RESOURCES)
        values = _within(_amount(), text_of(kind.value_type))
    elif field in {"annotations", "labels"}:
        names = st.sampled_from(ANNOTATIONS) | TEXT
        values = TEXT | st.sampled_from(["true", "a", "3", "root/a", "1,2"])
    return st.dictionaries(names, values, max_size=4)


_struct_cache: dict[tuple[type, int], st.SearchStrategy[dict[str, Any]]] = {}


def _struct(kind: mi.StructType, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    level = min(depth, 6)
    found = _struct_cache.get((kind.cls, level))
    if found is None:
        found = _struct_cache[kind.cls, level] = st.deferred(lambda: _fields(kind, level))
    return found


def _fields(kind: mi.StructType, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in kind.fields:
        drawn = _of(field.type, field.encode_name, depth + 1)
        (required if field.required or depth < 2 else optional)[field.encode_name] = drawn
    if depth >= 6:
        optional = {}
    return st.fixed_dictionaries(required, optional=optional)
