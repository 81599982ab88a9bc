"""What is wrong with an object that cannot be read, in the words of whoever wrote it.

msgspec says ``Expected `int`, got `str` - at `$.spec.tasks[0].replicas` ``; a user should read
`spec.tasks[0].replicas: expected int, got str`.
"""

import re

_AT = re.compile(r"^(?P<what>.*?) - at `(?P<key>key in )?\$(?P<path>.*)`$", re.DOTALL)


def describe(exc: BaseException) -> str:
    """Return one line for a msgspec decoding error: the path of the field, then the fault."""
    text = str(exc)
    path = ""
    if found := _AT.match(text):
        text = found["what"]
        path = found["path"].removeprefix(".")
        if found["key"]:
            path = f"{path} (a key)" if path else "(a key)"
    fault = text.replace("`", "")
    if fault[1:2].islower():
        fault = fault[0].lower() + fault[1:]
    return f"{path}: {fault}" if path else fault
