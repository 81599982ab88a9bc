"""The process that evaluates expressions: `python -m services.scheduler.cel LIMITS`.

It reads questions from standard input and writes an answer per device to standard output, until
standard input ends.
"""

import os
import sys
from typing import BinaryIO, Final

import msgspec

from services.scheduler.cel.frames import HEADER, READY, EvaluationRequest, SeenDevice, frame
from services.scheduler.cel.limits import ExpressionLimits, confine, start_clock

_NO_MEMORY: Final = 70
"""Exit code: an expression needed more memory than there is."""
_NICENESS: Final = 5
"""Behind the services where processors are scarce."""


def main() -> int:
    """Answer questions; return the exit code."""
    limits = msgspec.json.decode(sys.argv[1], type=ExpressionLimits)
    requests = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # a library that prints does not corrupt the replies
    os.nice(_NICENESS)
    confine(limits)
    try:
        # Not before the limits: what the library allocates counts, too.
        from services.scheduler.cel.environment import Environment

        environment = Environment()
    except (ImportError, RuntimeError, MemoryError) as error:
        results.write(frame(f"{type(error).__name__}: {error}"))
        return 1
    results.write(frame(READY))
    decode = msgspec.msgpack.Decoder(SeenDevice).decode
    while (request := _next(requests)) is not None:
        for device in request.devices:
            start_clock(limits.cpu_s)
            result = environment.answer(request.expression, decode(device))
            start_clock(0)
            results.write(frame(result))
    return 0


def _next(requests: BinaryIO) -> EvaluationRequest | None:
    header = requests.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    body = requests.read(HEADER.unpack(header)[0])
    return msgspec.msgpack.decode(body, type=EvaluationRequest)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MemoryError:
        sys.exit(_NO_MEMORY)
