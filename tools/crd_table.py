"""One line per field of a CRD: the form in which ours and Volcano's are compared.

The golden tables in tests/unit/api/golden/ were made from Volcano's CRDs as the reference
describes them (`crd-fields/*.json`, one JSON object per CRD). To make them again, or one for a
further kind:

    python -m tools.crd_table FOLDER_WITH_JSON TARGET batch.volcano.sh_cronjobs
"""

import json
import sys
from pathlib import Path

FACTS = (
    "type",
    "format",
    "default",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "pattern",
    "required",
    "x-kubernetes-int-or-string",
)


def table_of_reference(crd: dict) -> str:
    """Render a CRD given as the reference gives it: fields by path."""
    lines = _heads(crd["group"], crd["scope"], crd["names"])
    for version in crd["versions"]:
        lines += _version_heads(version, version["printerColumns"])
        lines += [f"{path}: {_facts(facts)}" for path, facts in version["fields"].items()]
    return _text(lines)


def table_of_manifest(manifest: dict) -> str:
    """Render a CRD given as the manifest that the API server takes."""
    spec = manifest["spec"]
    lines = _heads(spec["group"], spec["scope"], spec["names"])
    for version in spec["versions"]:
        lines += _version_heads(version, version.get("additionalPrinterColumns", []))
        root = version["schema"]["openAPIV3Schema"]["properties"]
        for name in root.keys() - {"apiVersion", "kind", "metadata"}:
            lines += _walk(name, root[name])
    return _text(lines)


def _text(lines: list[str]) -> str:
    return "\n".join(sorted(lines)) + "\n"


def _heads(group: str, scope: str, names: dict) -> list[str]:
    return [f"# group: {group}", f"# scope: {scope}", f"# names: {_json(names)}"]


def _version_heads(version: dict, columns: list[dict]) -> list[str]:
    return [
        f"# version: {version['name']} served={version['served']} storage={version['storage']}",
        f"# subresources: {_json(version.get('subresources'))}",
        *(f"# column {place}: {_json(column)}" for place, column in enumerate(columns)),
    ]


def _walk(path: str, schema: dict) -> list[str]:
    lines = [f"{path}: {_facts(schema)}"]
    for name, inner in schema.get("properties", {}).items():
        lines += _walk(f"{path}.{name}", inner)
    if "items" in schema:
        lines += _walk(f"{path}[]", schema["items"])
    if "additionalProperties" in schema:
        lines += _walk(f"{path}{{}}", schema["additionalProperties"])
    return lines


def _facts(schema: dict) -> str:
    if "ref" in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        return "verbatim"
    sets = {"enum", "required"}
    return " ".join(
        f"{fact}={_json(sorted(schema[fact]) if fact in sets else schema[fact])}"
        for fact in FACTS
        if fact in schema
    )


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def main(argv: list[str]) -> None:
    """Write the golden tables of the named CRDs."""
    source, target, *names = argv
    for name in names:
        crd = json.loads((Path(source) / f"{name}.json").read_text())
        (Path(target) / f"{name}.txt").write_text(table_of_reference(crd))


if __name__ == "__main__":
    main(sys.argv[1:])
