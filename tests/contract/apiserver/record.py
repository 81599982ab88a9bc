"""Writes `answers.json`: plays all dialogues on the real parts. `python -m` this module."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, Options
from tests.contract.apiserver.dialogues.catalogue import CASES
from tests.contract.apiserver.servers import opened
from tests.support.stack import CRDS

TARGET = Path(__file__).with_name("answers.json")


async def main() -> None:
    """Play and write."""
    with tempfile.TemporaryDirectory() as directory:
        options = Options(directory=Path(directory) / "plane")
        async with ControlPlane(options, parts.require()) as plane:
            await plane.apply_crds(CRDS)
            answers = {}
            async with opened(plane) as server:
                for name, case in CASES.items():
                    answers[name] = await (await server.dialogue()).play(case)
    text = json.dumps(answers, sort_keys=True, separators=(",", ":"))
    TARGET.write_text(text.replace('],"', '],\n"') + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
