"""Tests that cannot fail are found by reading them: no assertion, or one that always holds."""

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

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


class Suite:
    """The functions of all tests and of what they share, and which of them assert something."""

    def __init__(self) -> None:
        files = [*(ROOT / "tests").rglob("*.py"), ROOT / "pumice" / "testing.py"]
        self.trees = {path: ast.parse(path.read_text("utf-8")) for path in files}
        modules = {".".join(f.relative_to(ROOT).with_suffix("").parts): f for f in files}
        self._defined: dict[Name, list[tuple[Path, Function]]] = {}
        self._imported: dict[tuple[Path, str], tuple[Path, str]] = {}
        for path, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, Function):
                    self._defined[path, node.name] = [(path, node)]
                elif isinstance(node, ast.ClassDef):
                    for inner in node.body:
                        if isinstance(inner, Function):
                            self._defined.setdefault(inner.name, []).append((path, inner))
                elif isinstance(node, ast.ImportFrom) and node.module in modules:
                    for alias in node.names:
                        source = modules[node.module], alias.name
                        self._imported[path, alias.asname or alias.name] = source
        self._asserting: dict[Name, bool] = dict.fromkeys(ASSERT_THEMSELVES, True)

    def tests(self) -> Iterator[tuple[Path, Function]]:
        """Yield every test."""
        for path, tree in self.trees.items():
            if path.name.startswith("test_"):
                for node in ast.walk(tree):
                    if isinstance(node, Function) and node.name.startswith("test_"):
                        yield path, node

    def asserts(self, path: Path, function: Function) -> bool:
        """Tell whether a function asserts, expects an exception, or calls one that does."""
        for node in (node for stated in function.body for node in ast.walk(stated)):
            if isinstance(node, ast.Assert):
                return True
            if isinstance(node, ast.Raise) and "AssertionError" in ast.dump(node):
                return True
            if isinstance(node, ast.Call) and self._is_asserting(path, node.func):
                return True
        return False

    def _is_asserting(self, path: Path, called: ast.expr) -> bool:
        if isinstance(called, ast.Name):
            name = (path, called.id)
            return self._knows(self._imported.get(name, name))
        if isinstance(called, ast.Attribute):
            expects = isinstance(called.value, ast.Name) and called.value.id == "pytest"
            if expects:
                return called.attr in {"raises", "warns", "fail"}
            return self._knows(called.attr)
        return False

    def _knows(self, name: Name) -> bool:
        """Tell whether a function asserts; of methods of one name all have to."""
        if name not in self._asserting:
            self._asserting[name] = False  # for a function that calls itself
            found = self._defined.get(name, [])
            self._asserting[name] = bool(found) and all(self.asserts(*one) for one in found)
        return self._asserting[name]


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
    stated = ast.unparse(test)
    return stated.startswith("len(") and stated.endswith(") >= 0")


def test_every_test_asserts_something() -> None:
    suite = the_suite()
    silent = [
        f"{path.relative_to(ROOT)}:{test.lineno} {test.name}"
        for path, test in suite.tests()
        if not suite.asserts(path, test)
    ]
    assert silent == [], "no assertion: what should hold afterwards?"


def test_no_assertion_holds_whatever_the_code_does() -> None:
    vain = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path, tree in the_suite().trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and always_holds(node.test)
    ]
    assert vain == []


def test_what_always_holds_is_seen() -> None:
    words = ["True", "(a, 'text')", "a == a", "move.do in Do", "len(a) >= 0", "a < b or True"]
    sound = ["a == b", "a in KNOWN", "a in known", "len(a) >= 1", "a or b", "a"]
    read = {text: always_holds(ast.parse(text, mode="eval").body) for text in (*words, *sound)}
    assert [text for text, holds in read.items() if holds] == words
