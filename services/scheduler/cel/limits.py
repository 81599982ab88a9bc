"""Hard limits of the process that evaluates expressions, set by itself before it reads any.

The kernel enforces them. A process that exceeds one ends, with the cause in how it ends: the
signal of the timer, or an abort because memory cannot be had. No limit needs a privilege.
"""

import resource
import signal
from typing import Final

import msgspec


class ExpressionLimits(msgspec.Struct, frozen=True, array_like=True):
    """How much one expression may use for one device."""

    cpu_s: float = 0.1
    """Processor time. Kubernetes' own limit, a cost of 1,000,000, is meant to be as much."""
    memory_bytes: int = 256 << 20
    """Address space of the whole process, which needs 40 MiB for itself."""
    wall_s: float = 5.0
    """Time until the scheduler ends the process, if it neither computes nor replies."""


_FILES: Final = 32


def confine(limits: ExpressionLimits) -> bool:
    """Set the limits; return whether memory is limited, which macOS does not offer."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the scheduler closes the pipe
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_FSIZE, 0)
    _set(resource.RLIMIT_NOFILE, _FILES)
    return _set(resource.RLIMIT_AS, limits.memory_bytes)


def start_clock(cpu_s: float) -> None:
    """Have the kernel end the process once it has computed for so long, 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _set(which: int, most: int) -> bool:
    _, hard = resource.getrlimit(which)
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(which, (bound, bound))
    except (OSError, ValueError):
        return False
    return True
