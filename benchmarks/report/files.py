"""Stores records as JSON, and their pages beside them; finds the record to compare with.

`python -m benchmarks.report.files NOW [--against BEFORE]` draws a stored run once more.
"""

import argparse
import re
from pathlib import Path

import msgspec

from benchmarks.report.page import notable, page
from benchmarks.report.record import Record


def store(record: Record, folder: Path, against: Path | None = None) -> list[str]:
    """Write a run's JSON and its page; return lines for a person: where, and what has changed."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / re.sub(r"\W+", "-", record.load)
    before = None if against is None else load(against, f"{stem.name}.json")
    stored, drawn = stem.with_suffix(".json"), stem.with_suffix(".html")
    stored.write_bytes(msgspec.json.encode(record))
    return [f"stored in {stored}", *draw(record, drawn, before, str(against))]


def draw(record: Record, file: Path, before: Record | None, against: str) -> list[str]:
    """Write the page of a run; return lines for a person."""
    file.write_text(page(record, before, against=against), encoding="utf-8")
    changes = [] if before is None else [f"against {against}:", *_changes(record, before)]
    return [f"drawn in {file}", *changes]


def _changes(record: Record, before: Record) -> list[str]:
    return [f"  {line}" for line in notable(record, before)] or ["  nothing differs by a tenth"]


def load(path: Path, name: str) -> Record:
    """Read a stored run: a file, or the one of that name in a folder."""
    file = path / name if path.is_dir() else path
    return msgspec.json.decode(file.read_bytes(), type=Record)


def main() -> None:
    """Read the arguments and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("now", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    before = None if options.against is None else load(options.against, options.now.name)
    record = load(options.now, options.now.name)
    for line in draw(record, options.now.with_suffix(".html"), before, str(options.against)):
        print(line)


if __name__ == "__main__":
    main()
