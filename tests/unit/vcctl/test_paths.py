"""Names that a person types are parts of a path, and never more."""

from typing import Any, cast

import pytest

from pumice.vcctl.cluster import ClusterClient
from shared.api import kinds
from shared.kube.wire import Request

STRANGE = "a/../../nodes?x=y"


class Recording:
    host = "http://127.0.0.1"

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def exchange(self, request: Request) -> bytes:
        self.paths.append(request.path)
        return b"{}"


@pytest.mark.parametrize("verb", ["items", "create", "get"])
async def test_a_namespace_leads_out_of_no_collection(verb: str) -> None:
    transport = Recording()
    cluster = ClusterClient(cast("Any", transport), now_s=0.0)
    rest = {"items": (), "create": ({},), "get": ("n",)}[verb]
    await getattr(cluster, verb)(kinds.JOB, STRANGE, *rest)
    root = f"/apis/{kinds.JOB.api_version}/namespaces/a%2F..%2F..%2Fnodes%3Fx%3Dy/jobs"
    assert transport.paths == [f"{root}/n" if verb == "get" else root]
