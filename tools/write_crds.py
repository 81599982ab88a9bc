"""Writes `k8s/crds/` from the typed models (`make crds`): one file per kind, and no others.

`render` is apart so that the test that compares the checked-in files calls the very same code.
"""

from pathlib import Path

import yaml

from shared.api.crdgen import manifest
from shared.api.crds import CRDS

FOLDER = Path(__file__).parent.parent / "k8s" / "crds"
HEADER = "# Made by `make crds` from the types in shared/api: change those, not this file.\n"


def render() -> dict[str, str]:
    """Return the text of every file in `k8s/crds/` by its name."""
    files = {
        f"{crd.kind.group}_{crd.kind.plural}.yaml": HEADER
        + yaml.safe_dump(manifest(crd), sort_keys=False, width=100, allow_unicode=True)
        for crd in CRDS
    }
    listing = "".join(f"  - {name}\n" for name in sorted(files))
    files["kustomization.yaml"] = (
        f"{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources:\n{listing}"
    )
    return files


def main() -> None:
    """Write the files; remove those that no kind makes any more."""
    files = render()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in sorted(FOLDER.glob("*.yaml")):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
