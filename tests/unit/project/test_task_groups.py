"""All code uses the TaskGroup that leaves no mark on its task."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
OWN = {
    ROOT / "shared" / "runtime" / "tasks.py",
    # Imports nothing of `shared`, and compares two counts, so that an old mark means nothing to it.
    ROOT / "pumice" / "events" / "stream.py",
}
FILES = [f for top in ("shared", "services", "pumice") for f in sorted((ROOT / top).rglob("*.py"))]
FORBIDDEN = {"TaskGroup"}
WORTH_PARSING = re.compile("TaskGroup|cancelling|uncancel")
"""Most modules have none of these words, and parsing all of them takes seconds."""


def uses(source: str) -> list[str]:
    """Return what a module takes from asyncio though `shared.runtime.tasks` has it better."""
    found: list[str] = []
    if not WORTH_PARSING.search(source):
        return found
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name in FORBIDDEN:
                found.append(f"line {node.lineno}: asyncio.{name}")
            case ast.Attribute(attr="cancelling" | "uncancel" as name):
                found.append(f"line {node.lineno}: {name}")
            case ast.ImportFrom(module="asyncio", names=names):
                found += [f"line {node.lineno}: {n.name}" for n in names if n.name in FORBIDDEN]
            case _:
                pass
    return found


def test_tasks_are_started_by_the_groups_of_shared_runtime_only():
    found = {str(f.relative_to(ROOT)): uses(f.read_text()) for f in FILES if f not in OWN}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_search_finds_what_it_is_for():
    assert uses("import asyncio\nasyncio.TaskGroup()\ntask.cancelling()") == [
        "line 2: asyncio.TaskGroup",
        "line 3: cancelling",
    ]
