"""Who may see whose usage, on a real API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pumice.local.control_plane import ControlPlane
from shared.api.usage_reports import ReportRow, UsageReportSpec, UsageReportStatus
from shared.runtime.errors import Rejected, Retryable
from tests.integration.deploy.tenants import RBAC, tenant
from tests.support.answers import FixedAnswers
from tests.support.api import Api, ApiError, refusal
from tests.support.wait import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

URL = "/apis/visibility.pumice.dev/v1alpha1/usagereports"
GROUP = "rbac.authorization.k8s.io"
ROW = ReportRow(group={"queue": "research", "resource": "cpu"}, values={"amountHours": 2.5})


def report(**spec):
    head = {"apiVersion": "visibility.pumice.dev/v1alpha1", "kind": "UsageReport"}
    return {**head, "spec": {"report": "usage", **spec}}


@asynccontextmanager
async def bound(api: Api, name: str, role: str, rules=None, namespace: str = "") -> AsyncIterator:
    """Give the tenant of a test a ClusterRole, which is made if rules are given."""
    paths = []
    if rules is not None:
        body = {"metadata": {"name": role}, "rules": rules}
        await api.request("POST", f"{RBAC}/clusterroles", body)
        paths.append(f"{RBAC}/clusterroles/{role}")
    account = {"kind": "ServiceAccount", "name": "tenant", "namespace": name}
    place = f"/namespaces/{namespace}/rolebindings" if namespace else "/clusterrolebindings"
    binding = {
        "metadata": {"name": f"usage-of-{name}"},
        "subjects": [account],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
    }
    await api.request("POST", f"{RBAC}{place}", binding)
    paths.append(f"{RBAC}{place}/usage-of-{name}")
    try:
        yield
    finally:
        for path in paths:
            await api.request("DELETE", path)


async def eventually(his: Api, **spec) -> dict:
    """Return a report once the rights of a binding are known."""

    async def permitted() -> dict | None:
        try:
            return await his.request("POST", URL, report(**spec))
        except ApiError as error:
            if error.status != 403:
                raise
            return None

    found = await until(permitted, deadline_s=40, describe="the rights of the binding")
    assert found is not None
    return found


async def test_each_user_sees_the_usage_of_his_own_jobs_alone(
    told: FixedAnswers, api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    told.report = UsageReportStatus(rows=(ROW,))
    async with tenant(control_plane, api, "own-usage", tmp_path) as his:
        me = "system:serviceaccount:own-usage:tenant"
        found = await eventually(his, mine=True)
        assert found["status"]["rows"] == [{"group": ROW.group, "values": ROW.values}]
        assert told.reported[-1] == UsageReportSpec(report="usage", mine=True, user=me)
        await his.request("POST", URL, report(user=me, queue="research"))
        assert (told.reported[-1].user, told.reported[-1].queue) == (me, "research")
        before = len(told.reported)
        for spec in ({}, {"user": "ann"}, {"queue": "research"}, {"namespace": "own-usage"},
                     {"report": "history"}, {"report": "shares"}, {"report": "waits"}):  # fmt: skip
            assert "forbidden" in await refusal(his.request("POST", URL, report(**spec))), spec
        text = await refusal(his.request("POST", URL, report(mine=True, user="ann")))
        assert "spec.user" in text
        assert len(told.reported) == before


async def test_a_right_to_one_queue_shows_that_queue_alone(
    told: FixedAnswers, api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    rule = {
        "apiGroups": ["visibility.pumice.dev"], "resources": ["queues/usagereports"],
        "resourceNames": ["research"], "verbs": ["get"],
    }  # fmt: skip
    async with (
        tenant(control_plane, api, "queue-usage", tmp_path) as his,
        bound(api, "queue-usage", "usage-of-research", [rule]),
    ):
        await eventually(his, queue="research", user="ann")
        assert told.reported[-1].queue == "research"
        for spec in ({}, {"queue": "dev"}, {"user": "ann"}, {"namespace": "other"}):
            assert "forbidden" in await refusal(his.request("POST", URL, report(**spec))), spec


async def test_a_right_to_a_namespace_shows_that_namespace_alone(
    told: FixedAnswers, api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        tenant(control_plane, api, "team-usage", tmp_path) as his,
        bound(api, "team-usage", "pumice-usage-viewer", namespace="team-usage"),
    ):
        await eventually(his, namespace="team-usage")
        for spec in ({}, {"namespace": "other"}, {"queue": "research"}):
            assert "forbidden" in await refusal(his.request("POST", URL, report(**spec))), spec


async def test_a_right_to_the_cluster_shows_everything(
    told: FixedAnswers, api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        tenant(control_plane, api, "all-usage", tmp_path) as his,
        bound(api, "all-usage", "pumice-usage-viewer"),
    ):
        await eventually(his, report="history")
        for spec in ({"user": "ann"}, {"queue": "dev"}, {"namespace": "other"}):
            await his.request("POST", URL, report(**spec))


async def test_a_wrong_field_is_named_and_an_absent_accounting_too(
    told: FixedAnswers, api: Api
) -> None:
    told.failure = Rejected("'node': usage is grouped by queue", field="spec.by")
    with pytest.raises(ApiError) as refused:
        await api.request("POST", URL, report(by=["node"]))
    assert refused.value.status == 422
    assert "spec.by: 'node'" in str(refused.value)
    told.failure = Retryable("reports need the add-on accounting, which does not run")
    with pytest.raises(ApiError) as refused:
        await api.request("POST", URL, report())
    assert refused.value.status == 503
    assert "accounting" in str(refused.value)
    told.failure = None
    strict = f"{URL}?fieldValidation=Strict"
    assert "spec.sinse" in await refusal(api.request("POST", strict, report(sinse="x")))
