"""Every named fault point is reached by a restart test."""

from pathlib import Path

import pytest

from shared.runtime.faults import POINTS

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("point", POINTS)
def test_a_restart_test_goes_through_the_fault_point(point):
    files = [*(TESTS / "restart").glob("test_*.py"), *(TESTS / "integration").rglob("test_*.py")]
    assert [file for file in files if f'"{point}' in file.read_text()]
