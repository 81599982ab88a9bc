"""Slips in templates, judged by the OpenAPI of a real API server."""

from pathlib import Path

import pytest
import yaml

from tests.integration.admission.conftest import Door
from tests.support import world
from tests.support.api import Api, path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

EXAMPLES = Path(__file__).parents[3] / "examples"


def with_pod(name: str, **spec: object) -> dict:
    """Return a job whose pod has these fields, too."""
    made = world.job(name, world.task("w", 1))
    made["spec"]["tasks"][0]["template"]["spec"] |= spec
    return made


async def test_a_slip_is_refused_by_its_path_where_a_flag_asks_for_it(
    own_door: Door, api: Api, space: str
) -> None:
    await own_door.start(refuse_unknown_fields="true")
    slip = with_pod("slip", nodeSelektor={"a": "b"})
    at = "spec.tasks[0].template.spec.nodeSelektor: Kubernetes knows no such field"
    await own_door.refuses("jobs", slip, space, words=at)
    deep = with_pod("deep", affinity={"nodeAffinity": {"requiredDuringScheduling": {}}})
    said = await own_door.said("jobs", deep, space)
    assert "template.spec.affinity.nodeAffinity.requiredDuringScheduling: " in said
    rich = with_pod(
        "rich",
        nodeSelector={"a": "b"},
        tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
        volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "c", "configMap": {}}],
        securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
        topologySpreadConstraints=[],
        terminationGracePeriodSeconds=3,
    )
    assert await own_door.said("jobs", rich, space) == ""


async def test_no_example_has_a_field_that_kubernetes_does_not_know(
    own_door: Door, api: Api, space: str
) -> None:
    await own_door.start(refuse_unknown_fields="true")
    slip = with_pod("slip", nodeSelektor={"a": "b"})
    await own_door.refuses("jobs", slip, space, words="nodeSelektor")
    found = [
        manifest
        for file in sorted(EXAMPLES.glob("*.yaml"))
        for manifest in yaml.safe_load_all(file.read_text())
        if manifest and manifest["apiVersion"].startswith("batch.volcano.sh")
        and manifest["kind"] == "Job"
    ]  # fmt: skip
    assert found
    for job in found:
        job["spec"].pop("queue", None)
        where = f"{path('jobs', space)}?dryRun=All"
        await api.request("POST", where, {**job, "metadata": {"name": job["metadata"]["name"]}})
