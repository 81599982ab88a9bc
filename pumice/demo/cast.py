"""The jobs of the demo: which files, and in what order.

The files are copies of those in `examples/`, made by `make crds`, so that an installed demo has
them, too. Their annotations tell the fake kubelets when their pods end.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pumice.local.errors import LocalError

FILES: Final = Path(__file__).with_name("jobs")
ACTS: Final = (
    ("tensorflow-dist-mnist.yaml", "demo/twenty-together.yaml", "demo/mpi.yaml"),
    ("demo/elastic.yaml",),
    ("demo/waits-for-room.yaml",),
)
"""Submitted one act after the other, each once the gangs before it have a place: so the elastic
gang finds some room, and the last one none."""

NAMESPACE: Final = "default"


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the demo."""

    key: str
    """`namespace/name`."""
    manifest: dict[str, Any]


def acts(directory: Path = FILES) -> list[list[Role]]:
    """Read the jobs of each act. Raises LocalError naming a file that is missing or no job."""
    return [[_role(directory / file) for file in files] for files in ACTS]


def _role(path: Path) -> Role:
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        name = manifest["metadata"]["name"]
    except FileNotFoundError:
        raise LocalError(f"{path} is missing; install Pumice again") from None
    except (yaml.YAMLError, KeyError, TypeError) as exc:
        raise LocalError(f"{path} is no job: {exc}") from exc
    namespace = manifest["metadata"].get("namespace", NAMESPACE)
    return Role(key=f"{namespace}/{name}", manifest=manifest)
