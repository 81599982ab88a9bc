"""The real API server takes all that `kubectl apply -k k8s/base` sends, and the options."""

from pumice.deploy import nats_secrets
from pumice.local.control_plane import ControlPlane
from tests.support.api import connect
from tests.support.manifests import BASE, apply, build


async def test_the_api_server_takes_the_whole_base(guarded_plane: ControlPlane) -> None:
    """Nothing stays (dry run) but what the plane has anyway; unknown fields would be refused."""
    async with connect(guarded_plane.kubeconfig) as api:
        for manifest in (*build(BASE), *build(BASE.parent / "event-webhook")):
            answer = await apply(api, manifest, dryRun="All")
            assert answer["metadata"]["name"] == manifest["metadata"]["name"]


async def test_the_api_server_takes_the_printed_secrets(guarded_plane: ControlPlane) -> None:
    async with connect(guarded_plane.kubeconfig) as api:
        for manifest in nats_secrets.manifests(namespace="pumice-system", cluster="main"):
            answer = await apply(api, manifest, dryRun="All")
            assert answer["metadata"]["name"] == manifest["metadata"]["name"]


async def test_users_who_may_edit_a_namespace_may_submit_jobs(guarded_plane: ControlPlane) -> None:
    """Our kinds join the cluster's own roles by aggregation (O02)."""
    async with connect(guarded_plane.kubeconfig) as api:
        role = await api.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule.get("apiGroups", [])
        for resource in rule.get("resources", [])
        for verb in rule["verbs"]
    }
    assert ("batch.volcano.sh", "jobs", "create") in granted
    assert ("bus.volcano.sh", "commands", "create") in granted
    assert ("scheduling.volcano.sh", "queues", "create") not in granted
