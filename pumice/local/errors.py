"""The one failure of the local stack: a line for the person at the terminal."""


class LocalError(Exception):
    """Something on this machine is missing, taken or has died.

    Its text is one message that names the thing and says what to do; the command line prints it
    and nothing else.
    """
