"""`Failure`: a command that does not do what it was asked, with the text that the user reads."""


class Failure(Exception):  # noqa: N818 - it is shown behind "Failed to"
    """The text ends the line that begins with `Failed to …`."""
