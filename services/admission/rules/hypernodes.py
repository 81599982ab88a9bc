"""HyperNodes: members that can be found (W60); the rest is in the schema, CEL included."""

from typing import Final

from services.admission.rules.review import (
    AdmissionRequest,
    ReviewFacts,
    Terms,
    Verdict,
    read,
    refused,
)
from shared.api.patterns import BadPattern, finder
from shared.api.topology import HyperNode
from shared.jobs.problems import Problem, Problems

_SHOWN_MAX: Final = 200


def validate(request: AdmissionRequest, facts: ReviewFacts, terms: Terms) -> Verdict:
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
        selectors = [way for way in given if way is not None]
        if len(selectors) != 1:
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
    try:
        finder(pattern)
    except BadPattern as fault:
        return str(fault)
    return ""
