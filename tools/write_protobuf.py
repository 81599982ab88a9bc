"""Writes `pumice/embedded/apiserver/protobuf.json`: how built-in kinds are numbered in protobuf.

`python -m tools.write_protobuf` reads the pinned Go types by a small Go program (`tools/protobuf`),
so it needs Go. Run it when the pinned version of Kubernetes changes, or the kinds that are served.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

from pumice.local.build import GOMODS, find_go

PROGRAM: Final = Path(__file__).with_name("protobuf") / "main.go"
TARGET: Final = Path(__file__).parents[1] / "pumice/embedded/apiserver/protobuf.json"


def render() -> str:
    """Return the text of the file."""
    finished = subprocess.run(
        [find_go().path, "run", "-mod=readonly", PROGRAM],
        cwd=GOMODS / "kubernetes",
        env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.dumps(json.loads(finished.stdout), separators=(",", ":"), sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")
