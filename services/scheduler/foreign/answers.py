"""What answers of a foreign plugin have to look like; each function returns the answer, made exact.

The engine computes with what plugins answer without looking at it. For code that it was not tested
with it looks here: kind, length and range are checked at the border, so that a mistake is the
plugin's error with its name on it and not the engine's somewhere later.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from pumice.plugins import CodeArray, Condition, FloatArray, IntArray, Invalid, Opinion, Vote

LAST: Final = (math.inf,)
"""The key of what a failing order function would have ordered."""


class BadAnswer(TypeError):  # noqa: N818 - reads as the fact it states
    """An answer that the engine cannot use; the message says what it should have been."""


def flag(answer: object) -> bool:
    """Return a yes or no."""
    if not isinstance(answer, bool | np.bool_):
        raise BadAnswer(f"expected True or False, got {answer!r}")
    return bool(answer)


def count(answer: object, most: int | None = None) -> int:
    """Return a number of tasks."""
    if isinstance(answer, bool) or not isinstance(answer, int | np.integer):
        raise BadAnswer(f"expected a number of tasks, got {answer!r}")
    if answer < 0 or (most is not None and answer > most):
        raise BadAnswer(f"expected a number of tasks from 0 to {most}, got {answer}")
    return int(answer)


def key(answer: object) -> tuple[float, ...]:
    """Return an order key: a number, or a tuple of numbers, so that any two compare."""
    parts = answer if isinstance(answer, tuple) else (answer,)
    for part in parts:
        if not isinstance(part, bool | int | float | np.number) or math.isnan(part):
            raise BadAnswer(f"expected a number or a tuple of numbers as order key, got {answer!r}")
    return tuple(parts)


def vote(answer: object) -> Vote:
    """Return a ternary vote."""
    if not isinstance(answer, Vote):
        raise BadAnswer(f"expected a Vote, got {answer!r}")
    return answer


def opinion(answer: object) -> Opinion:
    """Return a vote with its reason."""
    if not isinstance(answer, Opinion):
        raise BadAnswer(f"expected an Opinion, got {answer!r}")
    return answer


def invalid(answer: object) -> Invalid | None:
    """Return an objection to a job, or None."""
    if answer is not None and not isinstance(answer, Invalid):
        raise BadAnswer(f"expected an Invalid or None, got {answer!r}")
    return answer


def condition(answer: object) -> Condition | None:
    """Return a condition, or None."""
    if answer is not None and not isinstance(answer, Condition):
        raise BadAnswer(f"expected a Condition or None, got {answer!r}")
    return answer


def text(answer: object) -> str:
    """Return a text."""
    if not isinstance(answer, str):
        raise BadAnswer(f"expected a str, got {answer!r}")
    return answer


def texts(answer: object) -> Mapping[str, str]:
    """Return a mapping of texts to texts."""
    if not isinstance(answer, Mapping):
        raise BadAnswer(f"expected a mapping, got {answer!r}")
    return {text(name): text(value) for name, value in answer.items()}


def tasks(answer: object, candidates: Sequence[Any]) -> list[Any]:
    """Return tasks, all of them among the candidates."""
    if not isinstance(answer, Sequence):
        raise BadAnswer(f"expected a sequence of tasks, got {answer!r}")
    known = {task.uid for task in candidates}
    for task in answer:
        if getattr(task, "uid", None) not in known:
            raise BadAnswer(f"expected tasks out of those that were given, got {task!r}")
    return list(answer)


def levels(answer: object) -> list[list[str]]:
    """Return names of HyperNodes, level by level."""
    if not isinstance(answer, list) or not all(isinstance(level, list) for level in answer):
        raise BadAnswer(f"expected a list of lists of names, got {answer!r}")
    return [[text(name) for name in level] for level in answer]


def numbers(answer: object, length: int) -> list[float]:
    """Return finite numbers, one per name that was asked about."""
    return [float(number) for number in scores(answer, length)]


def scores(answer: object, length: int) -> FloatArray:
    """Return finite scores, one per row."""
    array = np.asarray(answer, dtype=np.float64)
    _of_length(array, length)
    if not np.isfinite(array).all():
        raise BadAnswer("expected finite scores, got some that are infinite or no number")
    return array


def ranks(answer: object, length: int) -> IntArray:
    """Return whole numbers of at least 0, one per row."""
    array = np.asarray(answer)
    _of_length(array, length)
    _whole(array)
    if length and array.min() < 0:
        raise BadAnswer(f"expected ranks of at least 0, got {array.min()}")
    return array.astype(np.int64)


def codes(answer: object, length: int, reasons: int) -> CodeArray:
    """Return reason codes, one per row: 0, or the number of a reason that was announced."""
    array = np.asarray(answer)
    _of_length(array, length)
    if array.dtype != np.bool_:
        _whole(array)
    if length and (array.min() < 0 or array.max() > reasons):
        raise BadAnswer(
            f"expected codes from 0 to {reasons}, the number of reasons, "
            f"got {array.min()} to {array.max()}"
        )
    return array.astype(np.uint8)


def _of_length(array: np.ndarray, length: int) -> None:
    if array.shape != (length,):
        raise BadAnswer(f"expected an array of shape ({length},), got {array.shape}")


def _whole(array: np.ndarray) -> None:
    if not np.issubdtype(array.dtype, np.integer):
        raise BadAnswer(f"expected an array of integers, got one of {array.dtype}")
