"""Server-side apply, patches, and requests that cannot be read."""

from typing import Any

from tests.contract.apiserver.dialogue import Ask
from tests.contract.apiserver.dialogues.bodies import (
    APPLY,
    JSON_PATCH,
    MAPS,
    MERGE,
    STRATEGIC,
    Case,
    config,
)


def _apply(body: dict[str, Any], manager: str = "one", **query: str) -> Ask:
    path = f"{MAPS}/{body['metadata']['name']}"
    return Ask("PATCH", path, body, APPLY, query={"fieldManager": manager, **query}, keep="data")


APPLYING: dict[str, Case] = {
    "apply creates": [_apply(config("a", k="v"))._replace(keep="code"), _apply(config("a", k="v"))],
    "apply changes": [_apply(config("a", k="v")), _apply(config("a", k="w"))],
    "apply removes what it no longer says": [
        _apply(config("a", k="v", l="v")),
        _apply(config("a", l="v")),
    ],
    "apply leaves what others said": [
        _apply(config("a", k="v")),
        _apply(config("a", l="v"), "two"),
        _apply(config("a", k="w")),
    ],
    "apply does not take what others own": [
        _apply(config("a", k="v")),
        _apply(config("a", k="w"), "two")._replace(keep="head"),
    ],
    "apply takes it by force": [
        _apply(config("a", k="v")),
        _apply(config("a", k="w"), "two", force="true"),
    ],
    "apply needs a manager": [
        _apply(config("a"))._replace(query={}, keep="code"),
    ],
}

TEXT: dict[str, Case] = {
    "no JSON is refused": [Ask("POST", MAPS, "{nonsense", keep="code")],
    "a list is no object": [Ask("POST", MAPS, "[]", keep="code")],
    "an unknown patch type is refused": [
        Ask("POST", MAPS, config("a"), keep="code"),
        Ask("PATCH", f"{MAPS}/a", {}, "text/plain", keep="code"),
    ],
    "a method that is not": [Ask("POST", f"{MAPS}/a", config("a"), keep="code")],
    "a wrong API version is refused": [
        Ask("POST", MAPS, {**config("a"), "apiVersion": "v2"}, keep="code")
    ],
    "null removes": [
        Ask("POST", MAPS, config("a", k="v", l="v"), keep="code"),
        Ask("PATCH", f"{MAPS}/a", {"data": {"k": None}}, MERGE, keep="data"),
        Ask("PATCH", f"{MAPS}/a", {"data": None}, STRATEGIC, keep="data"),
    ],
    "operations are carried out in order": [
        Ask("POST", MAPS, config("a", k="v"), keep="code"),
        Ask(
            "PATCH",
            f"{MAPS}/a",
            [
                {"op": "copy", "from": "/data/k", "path": "/data/l"},
                {"op": "move", "from": "/data/k", "path": "/data/m"},
                {"op": "remove", "path": "/data/l"},
            ],
            JSON_PATCH,
            keep="data",
        ),
    ],
    "a resourceVersion at birth is refused": [
        Ask("POST", MAPS, config("a", {"resourceVersion": "1"}), keep="code")
    ],
}
