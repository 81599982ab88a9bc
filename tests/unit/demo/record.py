"""Records the events of a real demo: `python -m tests.unit.demo.record` writes `run.jsonl`.

One line per watch event, with the fields that the scene reads. Done again when the services show
something new; then `python -m tests.unit.demo.replay` writes the golden files, to be looked at.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

from pumice.demo.model import WatchChange
from pumice.demo.output import PlainOutput
from pumice.demo.run import FLEET
from pumice.demo.story import Demo
from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.stack import LocalStack, StackOptions
from shared.api.core import Node, Pod
from shared.kube.config import connect
from shared.runtime.clock import SystemClock

FILE = Path(__file__).with_name("run.jsonl")
METADATA = ("name", "namespace", "uid", "ownerReferences")
RUNNING_FOR = "volcano.sh/job-name"


class Recorder(Demo):
    """A demo that writes down what it takes in."""

    def __init__(self, lines: list[bytes], **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._lines = lines

    def _take(self, change: WatchChange) -> None:
        line = {
            "at_s": round(self.now_s(), 3),
            "op": change.op,
            "kind": type(change.obj).__name__,
            "object": trimmed(change),
        }
        self._lines.append(msgspec.json.encode(line))
        super()._take(change)


def trimmed(change: WatchChange) -> dict:
    """Return the object without what no scene reads."""
    obj = msgspec.json.decode(msgspec.json.encode(change.obj))
    metadata = obj["metadata"]
    marks = {k: v for k, v in metadata.get("annotations", {}).items() if k == RUNNING_FOR}
    obj["metadata"] = {k: metadata[k] for k in METADATA if k in metadata}
    if marks:
        obj["metadata"]["annotations"] = marks
    if isinstance(change.obj, Pod):
        spec = {k: v for k, v in obj["spec"].items() if k in ("nodeName", "containers")}
        obj |= {"spec": spec, "status": {"phase": change.obj.status.phase}}
        del obj["metadata"]["ownerReferences"]
    if isinstance(change.obj, Node):
        status = {k: v for k, v in obj["status"].items() if k in ("allocatable", "conditions")}
        obj |= {"spec": {}, "status": status}
    for task in obj.get("spec", {}).get("tasks", ()):
        task.pop("template", None)
    return obj


async def main() -> None:
    """Run the demo once and write the file."""
    clock, lines = SystemClock(), []
    with tempfile.TemporaryDirectory() as directory:
        options = StackOptions(plane=ControlPlaneOptions(directory=Path(directory)), fleet=FLEET)
        async with (
            LocalStack(options, parts.require()) as stack,
            await connect(str(stack.plane.kubeconfig), user_agent="pumice-record") as kube,
        ):
            demo = Recorder(
                lines,
                kube=kube,
                output=PlainOutput(sys.stdout),
                clock=clock,
                began_s=clock.monotonic(),
                versions="",
                deaths=stack.deaths,
            )
            await demo.play()
    FILE.write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    asyncio.run(main())
