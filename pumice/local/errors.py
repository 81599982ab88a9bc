"""The errors of the local stack; each text is one line for the user at the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager


class LocalError(Exception):
    """Something on this machine is missing, taken or has died.

    Its text is one message that names the thing and says what to do; the command line prints it
    and nothing else.
    """


class WrongSettingError(LocalError):
    """A flag or file cannot be used; a retry with it fails in the same way."""


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the first LocalError of a TaskGroup by itself: the others follow from it."""
    first: BaseException | None = None
    try:
        yield
    except* LocalError as group:
        first = group
        while isinstance(first, BaseExceptionGroup):  # `shared` is not installed everywhere
            first = first.exceptions[0]
    if first is not None:
        # Not inside of `except*`: before Python 3.11.4 that raises a group around it.
        raise first from None
