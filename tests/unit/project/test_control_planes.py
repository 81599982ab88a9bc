"""Integration tests that have a control plane of their own keep it no longer than needed."""

import ast
from pathlib import Path

from tests.conftest import PACKAGE, unit_of

INTEGRATION = Path(__file__).parents[2] / "integration"


def scopes(file: Path) -> set[str]:
    """Return the scopes of the fixtures of a file, if one of them is that of a package."""
    source = file.read_text()
    if '"package"' not in source:
        return set()
    return {
        keyword.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "scope" and isinstance(keyword.value, ast.Constant)
    }


def test_what_is_made_for_a_package_is_made_in_one() -> None:
    """Elsewhere pytest takes the scope "package" for that of the session."""
    made = {file.parent for file in INTEGRATION.rglob("*.py") if "package" in scopes(file)}
    packages = {file.parent for file in INTEGRATION.rglob(PACKAGE)} - {INTEGRATION}
    assert made == packages != set()


def test_the_files_of_such_a_folder_go_to_one_worker() -> None:
    assert unit_of("tests/integration/borders/test_a.py") == "tests/integration/borders"
    assert unit_of("tests/integration/binder/test_a.py") == "tests/integration/binder/test_a.py"


def test_a_restart_test_goes_alone_unless_its_file_has_servers_of_its_own() -> None:
    alone = "tests/restart/test_leaders.py::test_a[cache]"
    assert unit_of(alone) == alone
    file = "tests/restart/test_three_nats_servers.py"
    assert unit_of(f"{file}::test_a") == file
