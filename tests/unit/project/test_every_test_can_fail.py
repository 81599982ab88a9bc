"""Tests that cannot fail are found by reading them: no assertion, or one that always holds."""

import ast
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.timeout(300)
"""All tests are parsed: four seconds of CPU, and a minute where others have the processors."""
ROOT = Path(__file__).parents[3]
ASSERT_THEMSELVES: Mapping[str, str] = {
    "end_of": "waits for a scenario, which runs beside the others and raises what it found",
}
"""What a test may call in place of an assertion, and why this reading does not see that it is."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Name = tuple[Path, str] | str
"""A function of a module; or a method of any class, by its name alone."""


class Called(NamedTuple):
    """A function by its name in the module that calls it, or a method."""

    name: str
    method: bool = False


class Said(NamedTuple):
    """What matters of one function: whether its own words assert, and what it calls."""

    file: Path
    line: int
    name: str
    asserts: bool
    calls: tuple[Called, ...]


class Suite:
    """The functions of all tests and of what they share, and which of them assert something.

    Syntax trees are dropped file by file: a million objects, through which the garbage collector
    would go for the rest of the suite.
    """

    def __init__(self) -> None:
        files = [*(ROOT / "tests").rglob("*.py"), ROOT / "pumice" / "testing.py"]
        self.tests: list[Said] = []
        self.vain: list[str] = []
        """Assertions that always hold, with their places."""
        self._modules = {".".join(f.relative_to(ROOT).with_suffix("").parts): f for f in files}
        self._defined: dict[Name, list[Said]] = {}
        self._imported: dict[tuple[Path, str], tuple[Path, str]] = {}
        self._asserting: dict[Name, bool] = dict.fromkeys(ASSERT_THEMSELVES, True)
        for file in files:
            self._read(file, ast.parse(file.read_text("utf-8")))

    def _read(self, file: Path, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, Function):
                self._defined[file, node.name] = [said(file, node)]
            elif isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, Function):
                        self._defined.setdefault(inner.name, []).append(said(file, inner))
            elif isinstance(node, ast.ImportFrom) and node.module in self._modules:
                for alias in node.names:
                    source = self._modules[node.module], alias.name
                    self._imported[file, alias.asname or alias.name] = source
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and always_holds(node.test):
                self.vain.append(f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, Function) and is_test(file.name, node.name):
                self.tests.append(said(file, node))

    def asserts(self, function: Said) -> bool:
        """Tell whether a function asserts, expects an exception, or calls one that does."""
        return function.asserts or any(self._holds(function.file, c) for c in function.calls)

    def _holds(self, file: Path, called: Called) -> bool:
        if called.method:
            return self._knows(called.name)
        name = (file, called.name)
        return self._knows(self._imported.get(name, name))

    def _knows(self, name: Name) -> bool:
        """Tell whether a function asserts; of methods of one name all have to."""
        if name not in self._asserting:
            self._asserting[name] = False  # for a function that calls itself
            found = self._defined.get(name, [])
            self._asserting[name] = bool(found) and all(map(self.asserts, found))
        return self._asserting[name]


def is_test(*names: str) -> bool:
    """Tell whether pytest takes a function for a test by the names of its file and its own."""
    return all(name.startswith("test_") for name in names)


def said(file: Path, function: Function) -> Said:
    """Read one function; one that asserts is not read to its end."""
    calls: dict[Called, None] = {}
    for node in (node for stated in function.body for node in ast.walk(stated)):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                calls[Called(called.id)] = None
            elif isinstance(called, ast.Attribute):
                of_pytest = isinstance(called.value, ast.Name) and called.value.id == "pytest"
                if not of_pytest:
                    calls[Called(called.attr, method=True)] = None
                elif called.attr in {"raises", "warns", "fail"}:
                    return Said(file, function.lineno, function.name, True, ())
        elif isinstance(node, ast.Assert) or (
            isinstance(node, ast.Raise) and "AssertionError" in ast.dump(node)
        ):
            return Said(file, function.lineno, function.name, True, ())
    return Said(file, function.lineno, function.name, False, tuple(calls))


@functools.cache
def the_suite() -> Suite:
    """Return the suite, read once."""
    return Suite()


def always_holds(test: ast.expr) -> bool:
    """Tell whether an asserted expression holds whatever the code does.

    A constant, something compared with itself, a member in its own class, a length from 0 on.
    """
    if isinstance(test, ast.Constant | ast.Tuple | ast.List | ast.Dict | ast.Lambda):
        return True
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(always_holds(value) for value in test.values)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if isinstance(operator, ast.Eq | ast.Is | ast.LtE | ast.GtE) and isinstance(left, ast.Name):
        return ast.dump(left) == ast.dump(right)
    if isinstance(operator, ast.In) and isinstance(right, ast.Name):
        return right.id[0].isupper() and not right.id.isupper()
    if not isinstance(left, ast.Call):
        return False
    stated = ast.unparse(test)
    return stated.startswith("len(") and stated.endswith(") >= 0")


def test_every_test_asserts_something() -> None:
    suite = the_suite()
    silent = [
        f"{test.file.relative_to(ROOT)}:{test.line} {test.name}"
        for test in suite.tests
        if not suite.asserts(test)
    ]
    assert silent == [], "no assertion: what should hold afterwards?"


def test_no_assertion_holds_whatever_the_code_does() -> None:
    assert the_suite().vain == []


def test_what_always_holds_is_seen() -> None:
    words = ["True", "(a, 'text')", "a == a", "move.do in Do", "len(a) >= 0", "a < b or True"]
    sound = ["a == b", "a in KNOWN", "a in known", "len(a) >= 1", "a or b", "a"]
    read = {text: always_holds(ast.parse(text, mode="eval").body) for text in (*words, *sound)}
    assert [text for text, holds in read.items() if holds] == words
