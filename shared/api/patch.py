"""Merge patches (RFC 7386) between two states of an object.

Writers patch their own fields only (ADR 1). Views leave defaults out when they are
encoded, so an encoded view as a patch would never bring a counter back to 0; a difference does, by
removing the field.
"""

import msgspec

from shared.api.base import Json


def merge_patch(before: object, after: object) -> Json:
    """Return the merge patch that turns `before` into `after`: both views or plain JSON objects.

    Fields that only `before` has become null; lists are replaced whole; an empty result means
    equal. `msgspec.Raw` members of views are compared and patched as the JSON that they hold.
    """
    return _difference(_plain(before), _plain(after))


def _plain(value: object) -> Json:
    plain = msgspec.json.decode(msgspec.json.encode(value))
    assert isinstance(plain, dict), f"a merge patch needs objects, not {type(value).__name__}"
    return plain


def _difference(before: Json, after: Json) -> Json:
    patch: Json = dict.fromkeys(before.keys() - after.keys())
    for key, new in after.items():
        if key not in before:
            patch[key] = new
        elif isinstance(new, dict) and isinstance(before[key], dict):
            if inner := _difference(before[key], new):
                patch[key] = inner
        elif new != before[key] or type(new) is not type(before[key]):
            patch[key] = new
    return dict(sorted(patch.items()))
