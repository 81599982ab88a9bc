"""Expressions that the API server accepts and that cost far more than their length."""

from random import Random
from typing import Final

LENGTH_MAX: Final = 10 * 1024


def doubled_by_binding(depth: int) -> str:
    """Return a comparison of nested lists that share their parts: 2^depth elements."""
    found = f"a{depth} == a{depth}"
    for level in range(depth, 0, -1):
        found = f"cel.bind(a{level}, [a{level - 1}, a{level - 1}], {found})"
    return f"cel.bind(a0, [1, 1], {found})"


def doubled_by_mapping(depth: int) -> str:
    """Return the same without `cel.bind`."""
    nested = "[[1, 1]]" + ".map(x, [x, x])" * depth
    return f"cel.bind(a, {nested}, a == a && a in [a])"


def replaced(first: int, second: int, third: int) -> str:
    """Return a text that grows by the product of the lengths."""
    grown = f'"{"a" * first}".replace("a", "{"b" * second}").replace("b", "{"c" * third}")'
    return f'{grown} == ""'


HOSTILE: Final = {
    "lists bound twice": doubled_by_binding(22),
    "lists mapped twice": doubled_by_mapping(22),
    "replace": replaced(1000, 1000, 5000),
    "texts doubled": f"['{'x' * 100}']" + ".map(a, a + a)" * 25 + ".exists(a, a.contains('y'))",
    "costly loop": "cel.bind(r, lists.range(100000), lists.range(9000).all(x, r + r != [x]))",
    "giant list": f"lists.range(3000000).all(x, x in [{', '.join(['-1'] * 2_000)}])",
    "sorted lists": "lists.range(1000000).map(x, -x).sort().sort() == []",
    "sets": "sets.equivalent(lists.range(100000), lists.range(100000))",
    "join": "lists.range(5000000).map(x, 'aaaaaaaaaaaaaaaaaaaaaaaa').join('').size() == 1",
    "pattern on a growing text": "['aaaaaaaaaa']"
    + ".map(a, a + a + a + a)" * 13
    + ".all(a, a.matches('(a*)*(a|aa)*(a*)*b') || a.find('(x+x+)+y') == '')",
    "pattern of patterns": f'lists.range(100000).all(x, !"{"a" * 4_000}".matches("(a*)*(a*)*b"))',
    "format": f'lists.range(100000).map(x, "{"%s" * 50}".format([{", ".join(["x"] * 50)}])) == []',
}
"""Each exceeds a limit."""
NESTED: Final = {
    "parentheses": "(" * 5_000 + "true" + ")" * 5_000,
    "lists": "[" * 5_000 + "]" * 5_000 + " == []",
    "maps": '{"a":' * 1_600 + "1" + "}" * 1_600 + " == {}",
    "negations": "!" * 10_000 + "true",
    "additions": "1" + "+1" * 5_000 + " > 0",
    "conditions": "true ? " * 700 + "true" + " : true" * 700,
    "selections": "device" + ".a" * 5_000,
    "calls": "size(" * 2_000 + "''" + ")" * 2_000,
    "and": "true" + " && true" * 1_200,
    "one long text": f'"{"x" * 10_000}" == ""',
    "one long list": f"[{'1,' * 5_000}1] == []",
    "nested loops": "[1,2,3,4,5,6,7,8,9,10].all(a, " * 8 + "true" + ")" * 8,
    "nested ranges": "cel.bind(r, lists.range(5000), r.all(a, r.all(b, a <= a + b)))",
    "unfinished": "[" * 10_000,
    "no text at all": "\0" * 10_000,
}
"""Each is as long or as deep as it can be, and is answered or refused within the limits."""


def draw(rng: Random) -> str:
    """Return an expression of up to 10 KiB that combines what costs, wisely or not."""
    found = _value(rng, rng.randint(2, 7), ["1", "'aa'"])
    while rng.random() < 0.7 and len(found) < LENGTH_MAX:
        found = rng.choice(_GROWING).format(found)
    found = rng.choice(_ENDING).format(found)
    return found if len(found) <= LENGTH_MAX else doubled_by_binding(rng.randint(1, 28))


_GROWING: Final = (
    "[{0}, {0}]",
    "[{0}].map(x, [x, x])",
    "lists.range(1000).map(i, {0})",
    "string({0}) + string({0})",
    "cel.bind(v, {0}, [v, v, v, v])",
    "[{0}].map(y, lists.range(100).map(i, y))",
    "string({0}).replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaa')",
    "[{0}, 'a'].map(t, string(t).split('a'))",
    "{{'k': {0}}}",
)
_ENDING: Final = (
    "{0} == {0}",
    "{0} in [{0}, 1]",
    "size({0}) == 1",
    "[{0}].all(x, x == x)",
    "string({0}).matches('(a*)*b')",
    "[{0}].exists(x, size(x) > 100000)",
    "device.attributes['x'].?y.orValue({0}) == {0}",
    "sets.contains([{0}], [{0}])",
)


def _value(rng: Random, depth: int, known: list[str]) -> str:
    if not depth:
        return rng.choice(known)
    inner = _value(rng, depth - 1, known)
    if rng.random() < 0.5:
        name = f"v{depth}"
        return f"cel.bind({name}, {inner}, {_value(rng, depth - 1, [*known, name])})"
    return rng.choice(_GROWING).format(inner) if len(inner) < LENGTH_MAX // 8 else inner
