"""No `except*` block raises: before Python 3.11.4 what it raises arrives inside of a group."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.project.test_tidy import ROOT, tracked

PLACES = ("pumice", "services", "shared", "tools", "benchmarks", "examples", "tests")


def raises_in_star_handlers(source: str) -> Iterator[int]:
    """Yield the line of each `raise` in a block of `except*`; functions in it are their own."""
    for found in ast.walk(ast.parse(source)):
        if isinstance(found, ast.TryStar):
            for handler in found.handlers:
                yield from _raises(handler.body)


def _raises(body: list[ast.stmt]) -> Iterator[int]:
    todo: list[ast.AST] = list(body)
    while todo:
        found = todo.pop()
        if isinstance(found, ast.Raise):
            yield found.lineno
        elif not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(found)


@pytest.mark.parametrize("place", PLACES)
def test_no_star_handler_raises(place: str) -> None:
    files: list[Path] = [file for file in tracked(place) if file.suffix == ".py"]
    assert files
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line in raises_in_star_handlers(file.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("body", "count"),
    [("raise ValueError from None", 1), ("if x: raise", 1), ("def f(): raise ValueError", 0)],
)
def test_the_search_finds_a_raise(body: str, count: int) -> None:
    source = f"try:\n    x = 1\nexcept* ValueError:\n    {body}\n"
    assert len(list(raises_in_star_handlers(source))) == count
