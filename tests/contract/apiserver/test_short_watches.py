"""A short watch shows by its bookmark that it has come as far as the server was when asked."""

import pytest

from tests.contract.apiserver.client import Side

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_bookmark_of_a_short_watch_is_not_older_than_a_list_before_it(side: Side):
    """A quiet kind, of which nothing comes: that the version grew is the work of other kinds."""
    namespace = await side.namespace(with_account=False)
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "a"},
        "spec": {},
    }
    made = await side.request("POST", groups, group)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    other = await side.request(
        "POST", maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    )
    listed = await side.request("GET", f"{groups}?limit=1")
    since = made.body["metadata"]["resourceVersion"]
    query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={since}"
    answer = await side.events(f"{groups}?{query}", 0)
    assert [event["type"] for event in answer.body] == ["BOOKMARK"]
    asked = int(listed.body["metadata"]["resourceVersion"])
    assert asked >= int(other.body["metadata"]["resourceVersion"])
    assert int(answer.body[0]["object"]["metadata"]["resourceVersion"]) >= asked
