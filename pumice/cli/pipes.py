"""The end of a program whose reader is gone (`pumice why | head -1`): a silent one."""

import os
import sys
from typing import Final

READER_GONE: Final = 141
"""128 and the number of SIGPIPE: a shell shows this code when the signal ended a program."""


def hush() -> int:
    """Have nothing more written to the closed pipe, not even at the exit; return the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return READER_GONE
