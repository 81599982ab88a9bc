"""A local cluster has the roles that the pages tell users of, and they join `view` and `edit`."""

import msgspec
import pytest
import yaml

from pumice.local import admin
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.embedded import ensure
from pumice.local.fleet import Fleet, NodeShape
from pumice.local.stack import LocalStack, StackOptions
from tests.support.manifests import BASE
from tests.support.wait import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NO_NODES = Fleet(nodes=(NodeShape(count=0),))
ASKS = {
    ("viewer", "list", "visibility.pumice.dev", "pendingjobs"): True,
    ("viewer", "get", "batch.volcano.sh", "jobs"): True,
    ("viewer", "create", "visibility.pumice.dev", "whatifs"): False,
    ("viewer", "create", "batch.volcano.sh", "jobs"): False,
    ("editor", "create", "visibility.pumice.dev", "whatifs"): True,
    ("editor", "create", "batch.volcano.sh", "jobs"): True,
    ("editor", "update", "scheduling.volcano.sh", "queues"): False,
    ("planner", "create", "visibility.pumice.dev", "whatifs/cluster"): True,
    ("nobody", "create", "visibility.pumice.dev", "usagereports"): True,
    ("viewer", "get", "visibility.pumice.dev", "usagereports"): False,
    ("nobody", "list", "visibility.pumice.dev", "pendingjobs"): False,
}
"""User, verb, group and resource in the namespace default, and whether it is allowed."""


def roles_of_the_base():
    """Return the rules and labels of each ClusterRole that is meant for users, by name."""
    files = [BASE / "rbac" / name for name in ("users.yaml", "visibility-users.yaml")]
    found = [role for file in files for role in yaml.safe_load_all(file.read_text())]
    roles = (role for role in found if role["kind"] == "ClusterRole")
    return {r["metadata"]["name"]: (r["metadata"]["labels"], r["rules"]) for r in roles}


def stack(api, directory, binaries):
    options = ControlPlaneOptions(directory=directory, api=api)
    return LocalStack(StackOptions(plane=options, fleet=NO_NODES, services=()), binaries)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("api", ["embedded", "real"])
async def test_a_local_cluster_has_the_roles_of_users_of_the_base(api, tmp_path):
    async with stack(api, tmp_path, await ensure(api, print)) as local:
        async with admin.connect(local.plane.url, local.plane.pki) as client:
            items = (await client.request("GET", f"{RBAC}/clusterroles")).body["items"]
            ours = {r["metadata"]["name"]: (r["metadata"].get("labels"), r["rules"]) for r in items}
            wanted = roles_of_the_base()
            assert {name: ours.get(name) for name in wanted} == wanted
            if api == "real":
                await each_user_may_what_the_pages_say(client)
        await local.plane.apply_roles()  # as with the next `up` on the same data


async def each_user_may_what_the_pages_say(client):
    for user, role in (("viewer", "view"), ("editor", "edit")):
        await bind(client, user, role)
    await bind(client, "planner", "pumice-visibility-planner")
    for ask, wanted in ASKS.items():
        if wanted:
            await until(lambda ask=ask: may(client, *ask), describe=f"{ask} is allowed")
    for ask, wanted in ASKS.items():
        assert await may(client, *ask) is wanted, ask


async def bind(client, user, role):
    """Give a user a ClusterRole in the namespace default."""
    group = "rbac.authorization.k8s.io"
    body = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    path = f"{RBAC}/namespaces/default/rolebindings"
    answer = await client.request("POST", path, body=msgspec.json.encode(body))
    assert answer.ok, answer


async def may(client, user, verb, group, resource):
    name, _, sub = resource.partition("/")
    groups = ["system:authenticated"]
    place = {"namespace": "default", "verb": verb, "group": group, "resource": name}
    spec = {"user": user, "groups": groups, "resourceAttributes": {**place, "subresource": sub}}
    answer = await client.request("POST", REVIEWS, body=msgspec.json.encode({"spec": spec}))
    assert answer.ok, answer
    return answer.body["status"]["allowed"]
