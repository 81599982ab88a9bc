"""Copies the examples that the demo plays into its package (`make crds`).

An installed distribution has no folder `examples`; a test compares the copies.
"""

from pathlib import Path

from pumice.demo.cast import ACTS, FILES

EXAMPLES = Path(__file__).parents[1] / "examples"


def main() -> None:
    """Write the copies."""
    for file in (file for act in ACTS for file in act):
        target = FILES / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((EXAMPLES / file).read_bytes())


if __name__ == "__main__":
    main()
