"""Owners and dependents, finalizers, the end of namespaces."""

from typing import Any

from tests.contract.apiserver.dialogue import Ask
from tests.contract.apiserver.dialogues.bodies import CORE, MAPS, MERGE, OTHER, Case, config


def _owned(name: str, owner: str, **more: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner,
        "uid": f"{{uid.{owner}}}",
        **more,
    }
    return config(name, {"ownerReferences": [reference]})


def _policy(name: str) -> dict[str, str]:
    return {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": name}


_FAMILY = [
    Ask("POST", MAPS, config("a"), keep="code"),
    Ask("POST", MAPS, _owned("b", "a"), keep="metadata.ownerReferences"),
]
OWNERS: dict[str, Case] = {
    "dependents go after their owner": [
        *_FAMILY,
        Ask("DELETE", f"{MAPS}/a"),
        Ask("GET", f"{MAPS}/b", until="gone", keep="code"),
    ],
    "dependents go before their owner": [
        Ask("POST", MAPS, config("a"), keep="code"),
        Ask("POST", MAPS, _owned("b", "a", blockOwnerDeletion=True), keep="code"),
        Ask("DELETE", f"{MAPS}/a", _policy("Foreground"), keep="metadata.finalizers"),
        Ask("GET", f"{MAPS}/a", until="gone", keep="code"),
        Ask("GET", f"{MAPS}/b", keep="code"),
    ],
    "dependents may be left": [
        *_FAMILY,
        Ask("DELETE", f"{MAPS}/a", _policy("Orphan"), keep="metadata.finalizers"),
        Ask("GET", f"{MAPS}/a", until="gone", keep="code"),
        Ask("GET", f"{MAPS}/b", keep="metadata"),
    ],
    "one of two owners is enough": [
        *(Ask("POST", MAPS, config(n), keep="code") for n in "ac"),
        Ask(
            "POST",
            MAPS,
            config(
                "b",
                {
                    "ownerReferences": [
                        _owned("", o)["metadata"]["ownerReferences"][0] for o in "ac"
                    ]
                },
            ),
            keep="code",
        ),
        Ask("DELETE", f"{MAPS}/a", keep="code"),
        Ask(
            "GET",
            f"{MAPS}/b",
            query={"labelSelector": ""},
            keep="code",
        ),
    ],
    "an owner that never was takes its dependents along": [
        Ask("POST", MAPS, config("a"), keep="code"),
        Ask(
            "POST",
            MAPS,
            config(
                "b",
                {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": OTHER}
                    ]
                },
            ),
            keep="code",
        ),
        Ask("GET", f"{MAPS}/b", until="gone", keep="code"),
    ],
    "an owner needs a uid": [
        Ask(
            "POST",
            MAPS,
            config(
                "b", {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}]}
            ),
            keep="code",
        )
    ],
    "a namespace ends with what it holds": [
        Ask("POST", MAPS, config("a"), keep="code"),
        Ask("GET", f"{CORE}/namespaces/{{ns}}", keep="metadata.labels"),
        Ask("DELETE", f"{CORE}/namespaces/{{ns}}", keep="status.phase"),
        Ask("GET", f"{CORE}/namespaces/{{ns}}", until="gone", keep="code"),
        Ask("GET", f"{MAPS}/a", keep="code"),
    ],
    "nothing is created in a namespace that is not": [
        Ask("POST", f"{CORE}/namespaces/no-{{ns}}/configmaps", config())
    ],
    "nothing is created in a namespace that ends": [
        Ask("POST", MAPS, config("a", {"finalizers": ["example.com/wait"]}), keep="code"),
        Ask("DELETE", f"{CORE}/namespaces/{{ns}}", keep="code"),
        Ask("POST", MAPS, config("b")),
        Ask("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, MERGE, keep="code"),
    ],
    "the namespace of the object is that of the path": [
        Ask("POST", MAPS, config("a", {"namespace": "other"}), keep="head")
    ],
    "no finalizer is added to what is being deleted": [
        Ask("POST", MAPS, config("a", {"finalizers": ["example.com/wait"]}), keep="code"),
        Ask("DELETE", f"{MAPS}/a", keep="code"),
        Ask(
            "PATCH",
            f"{MAPS}/a",
            {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}},
            MERGE,
            keep="head",
        ),
        Ask("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, MERGE, keep="code"),
    ],
    "an immutable map does not change": [
        Ask("POST", MAPS, {**config("a", k="v"), "immutable": True}, keep="code"),
        Ask("PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, MERGE, keep="head"),
    ],
}
