"""Which requests the page's server answers: its own page's, with the key, for what it asks."""

import pytest

from pumice.web.gate import RequestGate, is_proxied

API = "/apis/visibility.pumice.dev/v1alpha1"
HOST = {"Host": "127.0.0.1:8642"}
OWN = {**HOST, "Origin": "http://127.0.0.1:8642"}


@pytest.fixture
def gate() -> RequestGate:
    return RequestGate(port=8642, key="secret")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/pendingjobs"),
        ("GET", "/namespaces/team-a/runningjobs"),
        ("GET", "/queuetrees"),
        ("GET", "/nodeuses"),
        ("GET", "/changes"),
        ("GET", "/namespaces/team-a/changes"),
        ("GET", "/namespaces/team-a/explanations/job.1"),
        ("GET", "/namespaces/team-a/timelines/job-1"),
        ("POST", "/namespaces/team-a/whatifs"),
        ("POST", "/usagereports"),
    ],
)
def test_what_the_page_asks_is_passed_on(method, path):
    assert is_proxied(method, API + path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", API),
        ("GET", f"{API}/namespaces/team-a/explanations/../../../../api/v1/secrets"),
        ("GET", f"{API}/namespaces/team-a/explanations/..%2f..%2fsecrets"),
        ("GET", f"{API}/namespaces//pendingjobs"),
        ("GET", f"{API}/pendingjobs/extra"),
        ("GET", f"{API}/namespaces/team-a/whatifs"),
        ("POST", f"{API}/pendingjobs"),
        ("POST", f"{API}/namespaces/team-a/pendingjobs"),
        ("GET", "/apis/visibility.pumice.devil/v1alpha1/pendingjobs"),
    ],
)
def test_nothing_else_is_passed_on(method, path):
    assert not is_proxied(method, path)


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:8642", "[::1]:8642"])
def test_names_of_the_loopback_are_answered(gate, host):
    assert gate.refuses("GET", {"Host": host}) is None


@pytest.mark.parametrize("host", ["evil.example:8642", "127.0.0.1", "127.0.0.1:80", ""])
def test_a_name_that_was_bent_to_the_loopback_is_refused(gate, host):
    refusal = gate.refuses("GET", {"Host": host})
    assert refusal is not None
    assert refusal.status == 421


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {**HOST, "Origin": "https://evil.example"}),
        ("GET", {**HOST, "Origin": "null"}),
        ("GET", {**HOST, "Origin": "http://127.0.0.1:9000"}),
        ("GET", {**HOST, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
        ("GET", {**HOST, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}),
        ("POST", HOST),
        ("POST", {**HOST, "Origin": "https://evil.example"}),
    ],
)
def test_a_page_of_another_site_is_refused(gate, method, headers):
    refusal = gate.refuses(method, headers)
    assert refusal is not None
    assert refusal.status == 403


def test_the_own_page_and_a_link_from_another_site_are_let_in(gate):
    assert gate.refuses("POST", OWN) is None
    assert gate.refuses("GET", {**OWN, "Sec-Fetch-Site": "same-origin"}) is None
    followed = {**HOST, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert gate.refuses("GET", followed) is None


def test_only_the_cookie_of_this_port_with_this_key_is_known(gate):
    assert gate.knows({"Cookie": "other=1; pumice-web-8642=secret"})
    assert not gate.knows({"Cookie": "pumice-web-8642=wrong"})
    assert not gate.knows({"Cookie": "pumice-web-8643=secret"})
    assert not gate.knows({})
    assert not gate.knows({"Cookie": "\x00=;;=[]"})
