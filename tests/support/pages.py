"""The command lines of README and docs: the blocks between fences that are no other language."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PROGRAMS = (
    "make",
    "pumice",
    "kubectl",
    "helm",
    "docker",
    "python",
    ".venv/bin/python",
    "comm",
    "nats",
    "source",
    "vcctl",
    "vsub",
    "vjobs",
    "vqueues",
    "vcancel",
)
"""Beginnings of commands among the lines of a block without a language."""


class Block(NamedTuple):
    """One block of commands on a page."""

    heading: str
    """The heading above it."""
    text: str

    @property
    def commands(self) -> list[str]:
        """Return its lines without what is said of them, `$` and output."""
        found = []
        for line in self.text.splitlines():
            bare = line.removeprefix("$ ")
            if bare.startswith(tuple(f"{program} " for program in _PROGRAMS)):
                found.append(re.sub(r"\s{2,}#.*$|\s+# .*$", "", bare).rstrip())
        return found


def pages() -> list[Path]:
    """Return README and all pages of docs that are for people who use Pumice."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that hold commands."""
    text = page.read_text("utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        heading = [h[1] for h in _HEADING.finditer(text, 0, match.start())][-1]
        block = Block(heading, textwrap.dedent(match[3]))
        if match[2] in {"", "sh", "bash", "console"} and block.commands:
            found.append(block)
    return found
