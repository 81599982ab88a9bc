"""Does what a script prints depend on how Python hashes strings in its process?"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed_under_hash_seeds(script: str) -> set[str]:
    """Return what a script printed under three hash seeds; one element means: it does not."""
    return {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
