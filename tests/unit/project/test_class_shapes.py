"""Names of classes tell them apart, and constructors take few arguments."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
MOST_ARGUMENTS = 8
"""What all parts of a process share is one argument, `shared.runtime.env.Env`."""
PUBLIC_AND_INNER = "a type of the public interface, and the engine's class behind it"
PUBLIC_AND_WIRE = "a type of the public interface, and its form on the bus or in Kubernetes"
SHARED_NAMES = {
    "ClaimUse": PUBLIC_AND_WIRE,
    "Cluster": "the view of a plugin, and the cluster that a test of plugins builds for it",
    "Condition": PUBLIC_AND_WIRE,
    "DeviceUse": PUBLIC_AND_WIRE,
    "Job": "a type of the public interface, the engine's class, and the kind of Kubernetes",
    "JobPlugin": "a type of the public interface, and the base of our own job plugins",
    "Journal": PUBLIC_AND_INNER,
    "Nodes": PUBLIC_AND_INNER,
    "PlacementTarget": PUBLIC_AND_INNER,
    "Queue": "a type of the public interface, the engine's class, and the kind of Kubernetes",
    "Rollup": PUBLIC_AND_INNER,
    "SubJob": PUBLIC_AND_INNER,
    "Task": PUBLIC_AND_INNER,
    "TaskClass": PUBLIC_AND_INNER,
    "Unreachable": "an error of the public client of events, and of our client of Kubernetes",
}


@cache
def classes() -> tuple[tuple[str, ast.ClassDef], ...]:
    """Return path and class of each class of the product."""

    def found() -> Iterator[tuple[str, ast.ClassDef]]:
        for folder in ("services", "shared", "pumice"):
            for path in sorted((ROOT / folder).rglob("*.py")):
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.ClassDef):
                        yield str(path.relative_to(ROOT)), node

    return tuple(found())


def test_no_two_public_classes_have_one_name_but_for_public_types_and_what_stands_behind_them():
    places = defaultdict(list)
    for path, node in classes():
        if not node.name.startswith("_"):
            places[node.name].append(path)
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not {name: where for name, where in twice.items() if name not in SHARED_NAMES}
    assert not SHARED_NAMES.keys() - twice.keys(), "a name that is no longer shared"


def test_constructors_take_few_arguments():
    taken = {}
    for _, node in classes():
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                given = member.args
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                if count > MOST_ARGUMENTS:
                    taken[node.name] = count
    assert not taken
