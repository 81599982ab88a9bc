"""The user of an object: the annotation `pumice.dev/user`, which admission writes.

What the controller makes from a template has the user of the object that contains it. A template
is written by its author, so that a user that is stated in one does not count.
"""

from collections.abc import Mapping

from shared.api import keys


def user_of(annotations: Mapping[str, str]) -> str:
    """Return the user that annotations name, on one line; "" without one."""
    return " ".join(annotations.get(keys.USER, "").split())


def without_user(template: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a template without a user."""
    return {name: value for name, value in template.items() if name != keys.USER}


def with_user_of(owner: Mapping[str, str], template: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a template with the user of the annotations of `owner`."""
    user = {keys.USER: owner[keys.USER]} if keys.USER in owner else {}
    return {**without_user(template), **user}
