"""The jobs of the demo: which files, in what order, and how long the fake training takes.

The files are in `examples/`, as a user would apply them. The TensorFlow job is the one of the
article, as it stands there: it says nothing about fake nodes, on which a pod runs for ever. So the
demo plays the training program: it tells the fake kubelet when the workers are through.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pumice.demo.model import Gang, Member, Stage
from pumice.local.errors import LocalError

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
ACTS: Final = (
    ("tensorflow-dist-mnist.yaml", "demo/twenty-together.yaml", "demo/mpi.yaml"),
    ("demo/elastic.yaml",),
    ("demo/waits-for-room.yaml",),
)
"""Submitted one act after the other, each once the gangs before it have a place: so the elastic
gang finds some room, and the last one none."""

NAMESPACE: Final = "default"
TRAINING_JOB: Final = f"{NAMESPACE}/tensorflow-benchmark"
TRAINING_TASK: Final = "worker"
TRAINING_S: Final = 4
RUN_SECONDS: Final = "pumice.dev/run-seconds"
"""Annotation that the local stack's fake kubelet reads (`pumice/local/stages.yaml`)."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the demo."""

    key: str
    """`namespace/name`."""
    manifest: dict[str, Any]


def acts(directory: Path = EXAMPLES) -> list[list[Role]]:
    """Read the jobs of each act. Raises LocalError naming a file that is missing or no job."""
    return [[_role(directory / file) for file in files] for files in ACTS]


def _role(path: Path) -> Role:
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
        name = manifest["metadata"]["name"]
    except FileNotFoundError:
        raise LocalError(f"{path} is missing; the demo runs from a checkout of Pumice") from None
    except (yaml.YAMLError, KeyError, TypeError) as exc:
        raise LocalError(f"{path} is no job: {exc}") from exc
    namespace = manifest["metadata"].get("namespace", NAMESPACE)
    return Role(key=f"{namespace}/{name}", manifest=manifest)


def in_training(gang: Gang) -> list[Member]:
    """Return the running pods that end only when the demo says so."""
    if gang.key != TRAINING_JOB:
        return []
    prefix = f"{gang.name}-{TRAINING_TASK}-"
    return [
        member
        for member in gang.members.values()
        if member.stage is Stage.RUNNING and member.name.startswith(prefix)
    ]
