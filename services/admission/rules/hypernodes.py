"""HyperNodes: members that can be found (W60); the rest is in the schema, CEL included."""

import re
from typing import Final

from services.admission.rules.review import (
    Facts,
    Request,
    Terms,
    Verdict,
    read,
    refused,
)
from shared.api.topology import HyperNode
from shared.jobs.problems import Problem, Problems

_WORDS: Final = {
    "unterminated character set": "missing closing ]",
    "unterminated subpattern": "missing closing )",
    "unbalanced parenthesis": "unexpected )",
    "nothing to repeat": "missing argument to repetition operator",
    "multiple repeat": "invalid nested repetition operator",
    "bad escape": "invalid escape sequence",
    "bad character range": "invalid character class range",
}
"""Python's words for a fault of a pattern → RE2's, which Volcano's users know."""
_NOT_RE2: Final = re.compile(r"\(\?(?:=|!|<=|<!|\(|>|P=)|\\[1-9]|[*+?}]\+")
"""What Python's patterns have beyond RE2's: looking around, references back, possessiveness."""

_PATTERN_MAX: Final = 4096
"""Letters; names that it is for have 253 at most."""
_SHOWN_MAX: Final = 200


def validate(request: Request, facts: Facts, terms: Terms) -> Verdict:
    """Refuse a HyperNode without members, or with a pattern that cannot be read."""
    del facts, terms
    node = read(request, HyperNode, "CREATE", "UPDATE")
    return node if isinstance(node, Verdict) else refused(_problems(node))


def _problems(node: HyperNode) -> Problems:
    if not node.spec.members:
        yield Problem("spec.members", "member must have at least one member")
    for index, member in enumerate(node.spec.members):
        at = f"spec.members[{index}].selector"
        selector = member.selector
        given = [selector.exact_match, selector.regex_match, selector.label_match]
        ways = [way for way in given if way is not None]
        if len(ways) != 1:
            yield Problem(at, "exactly one of exactMatch, regexMatch and labelMatch is needed")
        if selector.exact_match is not None and not selector.exact_match.name:
            yield Problem(f"{at}.exactMatch.name", "required")
        if selector.regex_match is not None:
            pattern = selector.regex_match.pattern
            if not pattern:
                yield Problem(f"{at}.regexMatch.pattern", "required")
            elif why := pattern_fault(pattern):
                shown = pattern[:_SHOWN_MAX]
                yield Problem(
                    f"{at}.regexMatch.pattern",
                    f'Invalid value: "{shown}": member regexMatch pattern is invalid: {why}',
                )


def pattern_fault(pattern: str) -> str:
    """Return why a regular expression cannot be read, or ""."""
    if found := _NOT_RE2.search(pattern):
        return f"error parsing regexp: invalid or unsupported Perl syntax: `{found[0]}`"
    if len(pattern) > _PATTERN_MAX:
        return "error parsing regexp: expression too large"
    try:
        re.compile(pattern)
    except RecursionError:
        return "error parsing regexp: expression nests too deeply"
    except OverflowError:
        return "error parsing regexp: invalid repeat count"
    except re.error as error:
        known = next((words for mark, words in _WORDS.items() if mark in error.msg), error.msg)
        return f"error parsing regexp: {known}: `{pattern[error.pos or 0 :]}`"
    return ""
