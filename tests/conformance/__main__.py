"""Runs recorded cases: `python -m tests.conformance PATH…`; one line per case, then a summary."""

import sys
from pathlib import Path

from tests.conformance.report import summary
from tests.conformance.run import cases_in, run_case


def main(arguments: list[str]) -> int:
    """Run the cases below the paths; return 0 when they could be run, 2 when a path is missing."""
    paths = [Path(argument) for argument in arguments]
    missing = [path for path in paths if not path.exists()]
    if missing or not paths:
        print(f"usage: python -m tests.conformance PATH…; not there: {missing}", file=sys.stderr)
        return 2
    verdicts = []
    for path in cases_in(paths):
        verdicts.append(run_case(path))
        print(verdicts[-1])
    print(summary(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
