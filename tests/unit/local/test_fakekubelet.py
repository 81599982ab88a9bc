"""What the endpoint in the place of kubelets answers to kube-apiserver."""

import msgspec
import pytest

from pumice.embedded.fakekubelet import no_program, response


def said(path: str) -> tuple[str, bytes]:
    head, _, body = response(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).partition(
        b"\r\n\r\n"
    )
    assert f"Content-Length: {len(body)}".encode() in head
    return head.decode().split(" ", 1)[1].partition("\r\n")[0], body


def test_a_log_is_refused_in_a_text_that_the_api_server_passes_on():
    refused = said("/containerLogs/ns/p/main?follow=true")
    assert refused == ("406 Not Acceptable", no_program("p", "log").encode())


@pytest.mark.parametrize(
    ("path", "subresource"),
    [
        ("/exec/ns/p/main?command=ls", "exec"),
        ("/attach/ns/p/main", "attach"),
        ("/portForward/ns/p", "portforward"),
    ],
)
def test_an_upgrade_is_refused_with_a_status(path, subresource):
    status, body = said(path)
    assert status == "400 Bad Request"
    assert msgspec.json.decode(body)["message"] == no_program("p", subresource)


@pytest.mark.parametrize("path", ["/", "/exec", "/exec/ns", "/exec/ns/", "/healthz", "", "*"])
def test_any_other_path_is_not_found(path):
    assert said(path)[0] == "404 Not Found"


def test_what_is_no_request_is_not_found_either():
    assert response(b"\xff\r\n\r\n").startswith(b"HTTP/1.1 404 ")
