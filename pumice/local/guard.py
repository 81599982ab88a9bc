"""Runs one program so that it never outlives its parent process.

Called as `python -I -S guard.py <parent pid> <program> <argument>…`, in a process group of its
own. On Linux the kernel is asked to kill the program when its parent dies, which survives the
exec; elsewhere a small watcher in the same group looks once a second (best effort). It is a file
to be run rather than a `preexec_fn`, because code between fork and exec is unsafe in a process
that has threads. Only the standard library, and little of it: it runs before every program.
"""

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the process `parent`, its parent, ends (Linux)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before prctl took effect
        sys.exit("the process that wanted this one is gone")


def _watch_parent(parent: int) -> None:
    """Fork a watcher that kills this process group once `parent` is gone."""
    program = os.getpid()
    if os.fork():
        return
    while os.getppid() == program:
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        time.sleep(_LOOK_S)
    os._exit(0)


def main(argv: list[str]) -> None:
    """Tie this process to its parent, then become the program."""
    parent, program, *arguments = argv
    if sys.platform == "linux":
        die_with_parent(int(parent))
    else:
        _watch_parent(int(parent))
    os.execv(program, [program, *arguments])  # noqa: S606 - the very purpose


if __name__ == "__main__":
    main(sys.argv[1:])
