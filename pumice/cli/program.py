"""How the program was called by the shell, and its exit when the reader of its output is gone."""

import os
import sys
from pathlib import Path
from typing import Final


def is_plugin() -> bool:
    """Return whether kubectl runs this program as its plugin."""
    return Path(sys.argv[0]).name.startswith("kubectl")


def called_as() -> str:
    """Return the command by which a user runs the program."""
    return "kubectl pumice" if is_plugin() else "pumice"


READER_GONE: Final = 141
"""128 and the number of SIGPIPE: a shell shows this code when the signal ended a program."""


def silence_stdout() -> int:
    """Redirect standard output to /dev/null, also for the flush at exit; return the exit code.

    For a program whose reader is gone (`pumice why | head -1`).
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return READER_GONE
