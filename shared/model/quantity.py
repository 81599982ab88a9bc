"""Kubernetes quantities (`100m`, `2Gi`, `1e3`) as exact integers.

Called for every resource of every pod and node, hence the integer-only fast path and the cache: a
cluster knows a few hundred distinct quantities, however many pods it has. No float and no Decimal
is involved, so that sums are exact and undo is exact.
"""

import re
from functools import lru_cache
from typing import Final

_SUFFIX: Final[dict[str, tuple[int, int]]] = {
    "n": (1, 10**9),
    "u": (1, 10**6),
    "m": (1, 10**3),
    "": (1, 1),
    "k": (10**3, 1),
    "M": (10**6, 1),
    "G": (10**9, 1),
    "T": (10**12, 1),
    "P": (10**15, 1),
    "E": (10**18, 1),
    "Ki": (1 << 10, 1),
    "Mi": (1 << 20, 1),
    "Gi": (1 << 30, 1),
    "Ti": (1 << 40, 1),
    "Pi": (1 << 50, 1),
    "Ei": (1 << 60, 1),
}
_FORM: Final = re.compile(
    r"([+-]?)(\d*)(?:\.(\d*))?(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_BOUND: Final = (1 << 63) - 1
"""Kubernetes caps a quantity here; so do the ledger's int64 arrays."""
_LETTERS_MAX: Final = 100
"""Far more than any amount takes; digits without end take time without end."""


class BadQuantity(ValueError):  # noqa: N818 - reads as the fact it states
    """The text is no Kubernetes quantity."""


def units(quantity: str | float) -> int:
    """Return the quantity in whole units (bytes, pods), rounded away from zero.

    Raises `BadQuantity`.
    """
    return _parse(str(quantity), 1)


def milli(quantity: str | float) -> int:
    """Return the quantity in thousandths (milli-CPU), rounded away from zero.

    Raises `BadQuantity`.
    """
    return _parse(str(quantity), 1000)


def is_quantity(text: str | float) -> bool:
    """Tell whether `units` and `milli` can read it."""
    try:
        milli(text)
    except BadQuantity:
        return False
    return True


@lru_cache(maxsize=65_536)
def _parse(text: str, scale: int) -> int:
    if len(text) > _LETTERS_MAX:
        raise BadQuantity(f"{text[:20]}... has {len(text)} letters, which is no quantity")
    if text.isdecimal() and text.isascii():
        return min(int(text) * scale, _BOUND)
    match = _FORM.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise BadQuantity(f"{text!r} is no quantity such as 500m, 2 or 4Gi")
    sign, whole, fraction, exponent, suffix = match.groups()
    numerator, denominator = _SUFFIX[suffix or ""]
    power = int(exponent[1:]) if exponent else 0
    power -= len(fraction or "")
    digits = int((whole or "") + (fraction or "")) * numerator * scale
    if power >= 0:
        digits *= 10**power
    else:
        denominator *= 10**-power
    value = min(-(-digits // denominator), _BOUND)
    return -value if sign == "-" else value


def format_milli(value_milli: int) -> str:
    """Return thousandths in the form that Kubernetes prints: `1500m`, but `2` for 2000."""
    whole, rest = divmod(value_milli, 1000)
    return f"{value_milli}m" if rest else str(whole)


def format_decimal(value_milli: int) -> str:
    """Return thousandths for a person: `38.4` for 38400."""
    whole, rest = divmod(value_milli, 1000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def decimal(quantity: str) -> str:
    """Return a quantity for a person: `38.4` for `38400m`; any other form stays as it is."""
    in_thousandths = quantity.endswith("m") and quantity[:-1].isdecimal()
    return format_decimal(int(quantity[:-1])) if in_thousandths else quantity


def format_bytes(value: int) -> str:
    """Return a count of bytes with the largest binary suffix that loses nothing."""
    for suffix, shift in (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if value and value & ((1 << shift) - 1) == 0:
            return f"{value >> shift}{suffix}"
    return str(value)


def canonical(text: str | float) -> str:
    """Return a quantity as Kubernetes prints it: `1` for 1000m, `1Gi` for 1024Mi, `10k` for 10000.

    Binary stays binary and decimal decimal; nothing is lost. Raises `BadQuantity`.
    """
    exact = milli(text)
    sign, exact = ("-", -exact) if exact < 0 else ("", exact)
    if str(text).endswith("i") and exact % 1000 == 0:
        return sign + format_bytes(exact // 1000)
    for suffix, size in (("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0)):
        unit = 10 ** (size + 3)
        if exact and exact % unit == 0:
            return f"{sign}{exact // unit}{suffix}"
    return f"{sign}{exact}m" if exact else "0"
