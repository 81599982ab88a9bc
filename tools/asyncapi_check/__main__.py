"""Holds the AsyncAPI document to what strangers make of it (`make asyncapi-check`).

The public parser must find nothing wrong with the document, the public generator makes TypeScript
models of it, and a plain nats-py client reads every event of a real run on the embedded API server.
The TypeScript compiler then takes each event as a literal of its model: a field that is missing,
unknown or of another type, or a constant with another value, is an error. Needs npm; what it
installs (package-lock.json) goes to a scratch folder.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import nats

from pumice.events import CATALOGUE
from pumice.events.envelope import type_of
from pumice.local import parts
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.embedded import EmbeddedPlane
from tests.contract.events.events_of_a_run import play

HERE: Final = Path(__file__).parent
DOCUMENT: Final = HERE.parents[1] / "docs" / "events" / "asyncapi.yaml"
_STEP_S: Final = 300
_MODELS: Final = {type_of(each): f"{each.__name__}Event" for each in CATALOGUE}


def main() -> int:
    """Return 0 when every event of a run fits."""
    npm = shutil.which("npm")
    if npm is None:
        print("error: npm is needed (it comes with Node.js 20 or newer)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="pumice-asyncapi-") as made:
        folder = Path(made)
        for name in ("package.json", "package-lock.json", "models.mjs"):
            shutil.copy(HERE / name, folder)
        if not _runs(folder, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"):
            return 1
        if not _runs(folder, "node", "models.mjs", DOCUMENT, "models.ts"):
            return 1
        events = asyncio.run(received(folder))
        counts = Counter(event["type"] for event in events)
        print(f"nats-py: received {len(events)} events of {len(counts)} types")
        if missing := sorted(_MODELS.keys() - counts.keys()):
            print(f"error: no event of {', '.join(missing)}", file=sys.stderr)
            return 1
        if not fits(folder, events):
            return 1
    print("typescript: every event fits the model of its type")
    return 0


async def received(folder: Path) -> list[dict[str, Any]]:
    """Let everything happen once on a cluster of our own; returns what a plain client reads."""
    found: list[dict[str, Any]] = []

    async def look(url: str, password: str) -> None:
        client = await nats.connect(url, user="events", password=password)
        try:
            stream = client.jetstream()
            events = await stream.subscribe("pumice.local.events.>", ordered_consumer=True)
            left = 1
            while left:
                message = await events.next_msg(timeout=10)
                found.append(json.loads(message.data))
                left = message.metadata.num_pending
        finally:
            await client.close()

    options = ControlPlaneOptions(directory=folder / "plane", api="embedded")
    async with EmbeddedPlane(options, parts.require(["nats-server"])) as plane:
        await plane.apply_crds()
        await play(plane, folder, look)
    return found


def fits(folder: Path, events: list[dict[str, Any]]) -> bool:
    """Return whether the compiler takes each event for one of its type, and no wrong one."""
    program = _program(events)
    (folder / "received.ts").write_text(program, encoding="utf-8")
    compiler = ("node", "node_modules/typescript/bin/tsc", "--strict", "--noEmit")
    compiler += ("--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler")
    compiler += ("--typeRoots", "none", "--skipLibCheck")
    if not _runs(folder, *compiler, "received.ts"):
        return False
    for broken in _broken(events[0]):
        (folder / "wrong.ts").write_text(_program([broken]), encoding="utf-8")
        if _runs(folder, *compiler, "wrong.ts", quiet=True):
            print(f"error: the models take a wrong event: {json.dumps(broken)}", file=sys.stderr)
            return False
    return True


def _program(events: list[dict[str, Any]]) -> str:
    lines = [f'import type {{ {", ".join(sorted(_MODELS.values()))} }} from "./models";']
    for number, event in enumerate(events):
        model = _MODELS[event["type"]]
        lines.append(f"export const event{number}: {model} = {json.dumps(event)};")
    return "\n".join(lines) + "\n"


def _broken(event: dict[str, Any]) -> list[dict[str, Any]]:
    """Return events that fit no model: the check itself must be able to fail."""
    return [
        {name: value for name, value in event.items() if name != "subject"},
        event | {"specversion": "0.3"},
        event | {"id": 1},
        event | {"data": event["data"] | {"unheardOf": "x"}},
    ]


def _runs(folder: Path, *command: object, quiet: bool = False) -> bool:
    """Run one step in the scratch folder and show what it says; returns whether it succeeded."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_STEP_S,
    )
    if not quiet:
        print(re.sub(r"(?m)^npm (warn|notice).*\n?", "", done.stdout), end="", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
