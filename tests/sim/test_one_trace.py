"""One seed, one trace: in this process, in another one, whatever the hash seed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.sim.simulation import simulate

ROOT = Path(__file__).parents[2]
SEED = 4
PROGRAM = f"from tests.sim.simulation import simulate; print(simulate({SEED}).digest)"


def digest_elsewhere(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_seed_gives_the_same_trace_again_and_under_any_hash_seed():
    here = simulate(SEED).digest
    assert here == simulate(SEED).digest
    assert digest_elsewhere("1") == here, "the hash seed of this process is drawn"


def test_another_seed_gives_another_trace():
    quiet = {simulate(seed, workload="steady", nemesis_names=[]).digest for seed in (1, 2)}
    assert len(quiet) == 2
