"""Prints how a release talks, as JSON: `PYTHON -P describe.py CLUSTER`, with the release's Python.

It runs in the environment of that release. So it takes nothing else of this checkout, and of the
release only the names that are imported here.
"""

import json
import sys
from typing import Any

from msgspec import inspect

from shared.api.kinds import KINDS
from shared.bus.streams import config_of, consumer_config_of
from shared.contracts import leases
from shared.contracts import messages as m
from shared.contracts.streams import all_streams, durable_consumers, streams

MESSAGES = {
    "fact": m.Fact,
    "marker": m.Marker,
    "leader": m.LeaderRecord,
    "command": m.Command,
    "desired": m.Desired,
    "outcome": m.Outcome,
    "lease": leases.LeaseRecord,
    "member": leases.Member,
}

Shape = Any


class Shapes:
    """The forms of types as JSON, and of the structs in them under their names."""

    def __init__(self) -> None:
        self.structs: dict[str, Shape] = {}

    def of(self, kind: inspect.Type) -> Shape:
        """Return the form of a type."""
        match kind:
            case inspect.StructType():
                return {"struct": self._struct(kind)}
            case inspect.UnionType(types=types):
                return {"union": [self.of(each) for each in types]}
            case inspect.EnumType(cls=cls):
                return {"enum": sorted(member.value for member in cls)}
            case inspect.LiteralType(values=values):
                return {"enum": sorted(values)}
            case inspect.DictType(value_type=value):
                return {"map": self.of(value)}
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return {"list": self.of(item)}
            case inspect.Metadata(type=inner):
                return self.of(inner)
        return type(kind).__name__.removesuffix("Type").lower()

    def _struct(self, kind: inspect.StructType) -> str:
        cls = kind.cls
        name = f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
        if name not in self.structs:
            shown = self.structs[name] = {
                "tag": kind.tag,
                "strict": kind.forbid_unknown_fields,
                "fills": not cls.__struct_config__.omit_defaults,
                "fields": {},
            }
            for field in kind.fields:
                shown["fields"][field.encode_name] = {
                    "required": field.required,
                    "type": self.of(field.type),
                }
        return name


def forms(types: dict[str, Any]) -> Shape:
    """Return the form of each type by its name, and the structs in them."""
    shapes = Shapes()
    found = {name: shapes.of(inspect.type_info(kind)) for name, kind in types.items()}
    return {"types": found, "structs": shapes.structs}


def described(cluster: str) -> Shape:
    """Return the forms of messages and of what facts hold, and the streams as declared."""
    return {
        "messages": forms(MESSAGES),
        "bodies": forms({token: kind.type for token, kind in KINDS.items()}),
        "streams": [config_of(spec) for spec in all_streams(streams(cluster))],
        "consumers": [
            {"stream": spec.stream, "config": consumer_config_of(spec)}
            for spec in durable_consumers(cluster)
        ],
    }


if __name__ == "__main__":
    json.dump(described(sys.argv[1]), sys.stdout, indent=1, sort_keys=True)
