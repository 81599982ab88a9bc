"""CEL expressions of CRD rules and of match conditions, compiled once per text.

The costs of an evaluation are not bounded: who may write CRDs and webhooks here administers the
server.
"""

from functools import lru_cache
from typing import Any, Final

import cel

_ERRORS: Final = (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError)


class ExpressionError(Exception):
    """An expression has no value for these variables."""


class Expression:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        """Compile it. Raises ValueError for a text that is no CEL."""
        self.text = text
        self._program = cel.compile(text)

    def value(self, variables: dict[str, Any] | cel.Context) -> Any:  # noqa: ANN401 - any JSON
        """Return the value; variables of a `Context` are converted once for several expressions.

        Raises `ExpressionError`.
        """
        try:
            return self._program.execute(variables)
        except _ERRORS as error:
            raise ExpressionError(str(error)) from error


@lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """Return the expression of a text. Raises ValueError for a text that is no CEL."""
    return Expression(text)
