"""Writes docs/events/asyncapi.yaml from the types of events: part of `make crds`.

A test fails when the file differs from them.
"""

import inspect
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pumice.events.envelope import type_of
from pumice.events.types import CATALOGUE, Event

PAGE: Final = Path(__file__).parents[1] / "docs" / "events" / "asyncapi.yaml"
_BINDING: Final = "0.1.0"
_REF: Final = "#/components/schemas/{name}"


def schemas() -> dict[str, Any]:
    """Return the JSON Schema of each event's data, by class name."""
    _, components = msgspec.json.schema_components(CATALOGUE, ref_template=_REF)
    return {name: components[name] for name in (each.__name__ for each in CATALOGUE)}


def envelope_schema(each: type[Event]) -> dict[str, Any]:
    """Return the JSON Schema of a whole CloudEvent of one type."""
    return {
        "title": f"{each.__name__}Event",
        "type": "object",
        "required": ["specversion", "id", "source", "type", "subject", "time", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1},
            "source": {
                "type": "string",
                "description": "/pumice/<cluster>/<service>/<instance>",
            },
            "type": {"const": type_of(each)},
            "subject": {"type": "string", "description": "key of the object it happened to"},
            "time": {"type": "string", "format": "date-time"},
            "datacontenttype": {"const": "application/json"},
            "data": {"$ref": _REF.format(name=each.__name__)},
        },
    }


def document() -> dict[str, Any]:
    """Return the AsyncAPI 3.1 document."""
    return {
        "asyncapi": "3.1.0",
        "info": {
            "title": "Pumice scheduling events",
            "version": "1.0.0",
            "description": (
                "CloudEvents 1.0 (structured JSON) on the JetStream stream "
                "PUMICE_<cluster>_EVENTS. Kept for 7 days or 1 GiB; replayable by sequence or time."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/cloudevents+json",
        "servers": _servers(),
        "channels": {_channel(each): _channel_of(each) for each in CATALOGUE},
        "operations": {
            f"receive{each.__name__}": {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{_channel(each)}"},
                "summary": _summary(each),
                "bindings": {"nats": {"bindingVersion": _BINDING}},
            }
            for each in CATALOGUE
        },
        "components": {
            "messages": {each.__name__: _message(each) for each in CATALOGUE},
            "schemas": schemas(),
            "securitySchemes": {
                "subscriber": {
                    "type": "userPassword",
                    "description": (
                        "The user `events`, or `events-<namespace>`, which sees the events of one "
                        "namespace only. Any NATS client works with its defaults: core "
                        "subscriptions hear what happens now, JetStream goes on where it stopped."
                    ),
                }
            },
        },
    }


def _servers() -> dict[str, Any]:
    """Return where NATS is: beside the local cluster, and in a cluster."""
    security = [{"$ref": "#/components/securitySchemes/subscriber"}]
    return {
        "local": {
            "host": "127.0.0.1:{port}",
            "protocol": "nats",
            "description": "the local cluster of `pumice up`",
            "variables": {
                "port": {"default": "4222", "description": "as `pumice status` shows it"}
            },
            "security": security,
        },
        "cluster": {
            "host": "pumice-nats.pumice-system.svc:4222",
            "protocol": "nats",
            "description": "the server of k8s/base; its certificate is signed by its own authority",
            "security": security,
        },
    }


def text() -> str:
    """Return the document as YAML."""
    head = "# Made from pumice/events/types.py by python -m tools.write_asyncapi: do not edit.\n"
    return head + yaml.safe_dump(document(), sort_keys=False, width=100, allow_unicode=True)


def _channel(each: type[Event]) -> str:
    return re.sub(r"[^a-z]", "-", each.topic)


def _summary(each: type[Event]) -> str:
    return (inspect.getdoc(each) or "").partition("\n")[0]


def _channel_of(each: type[Event]) -> dict[str, Any]:
    return {
        "address": f"pumice.{{cluster}}.events.{each.topic}.{{namespace}}",
        "title": _summary(each),
        "parameters": {
            "cluster": {"description": "name of the cluster, `local` by default"},
            "namespace": {"description": "namespace of the object; _ if it is cluster-scoped"},
        },
        "messages": {each.__name__: {"$ref": f"#/components/messages/{each.__name__}"}},
    }


def _message(each: type[Event]) -> dict[str, Any]:
    return {
        "name": type_of(each),
        "title": each.__name__,
        "summary": _summary(each),
        "contentType": "application/cloudevents+json",
        "payload": envelope_schema(each),
    }


def main() -> None:
    """Write the page."""
    PAGE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
