"""Label selectors, as text and as objects, in the API server's notation."""

import pytest

from pumice.embedded.apiserver import selecting
from pumice.embedded.apiserver.replies import RequestFailure

LABELS = {"app": "web", "tier": "3", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("app=web", True),
        ("app==web,tier", True),
        ("app!=web", False),
        ("other!=web", True),
        ("empty=", True),
        ("other=", False),
        ("!other", True),
        ("! app", False),
        ("app in (api, web)", True),
        ("app notin (api,web)", False),
        ("other notin (web)", True),
        ("tier>2", True),
        ("tier<3", False),
        ("app>2", False),
        ("other<2", False),
    ],
)
def test_a_selector_selects_as_in_kubernetes(selector: str, is_selected: bool) -> None:
    match = selecting.labels(selector)
    assert match is not None
    assert match(LABELS) is is_selected


def test_an_empty_selector_selects_all_and_one_that_cannot_be_read_is_refused() -> None:
    assert selecting.labels(" ") is None
    with pytest.raises(RequestFailure, match="unable to parse requirement"):
        selecting.labels("app in web")


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": None, "matchExpressions": None}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "api"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}, False),
    ],
)
def test_a_selector_object_selects_as_in_kubernetes(selector: dict | None, is_selected: bool):
    assert selecting.of_spec(selector)(LABELS) is is_selected
