"""The table of sizes in docs/architecture.md says about how large each package is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| ((?:`[a-z/]+`(?:, )?)+)( \(rest\))? \| ([\d,]+) \|", re.MULTILINE)
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SECTION = PAGE.partition("## Size\n")[2].partition("\n## ")[0]
STATED = {
    tuple(re.findall(r"`([a-z/]+)`", names)): int(number.replace(",", ""))
    for names, _, number in ROW.findall(SECTION)
}
NEAR = 0.15


def lines_of(folder: str) -> int:
    """Return the lines of a package, less those of packages below it that have a row."""
    below = [other for names in STATED for other in names if other.startswith(f"{folder}/")]
    files = (ROOT / folder).rglob("*.py")
    own = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    return own - sum(map(lines_of, below))


@pytest.mark.parametrize("names", STATED, ids=", ".join)
def test_a_stated_size_is_near_the_real_one(names: tuple[str, ...]) -> None:
    real = sum(map(lines_of, names))
    assert abs(real - STATED[names]) <= NEAR * real, f"{real} lines; correct docs/architecture.md"
