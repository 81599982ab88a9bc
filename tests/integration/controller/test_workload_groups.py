"""Pods below one workload are one gang, whatever controllers are between (docs/pod-groups.md).

ConfigMaps stand for custom resources: the controller may read them, and a row makes them workloads.
"""

from typing import Any

import pytest

from tests.integration.controller.conftest import Hand
from tests.integration.controller.test_workloads import Workloads, template
from tests.support.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROWS = """
rows:
- group: ""
  kind: ConfigMap
  label: role
  queue: [object.data.queue]
  roles:
  - {name: head}
  - {name: worker, count: object.metadata.annotations.workers}
"""


async def config_map(hand: Hand, name: str, owner: Any = None, **meta: Any) -> dict[str, Any]:
    """Create a ConfigMap, which another one may own; return a reference to it."""
    if owner is not None:
        meta["ownerReferences"] = [owner]
    body = {"metadata": {"name": name, **meta}, "data": {"queue": "default", "rows.yaml": ROWS}}
    made = await hand.api.create("configmaps", body, hand.namespace)
    uid = made["metadata"]["uid"]
    about = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    return {**about, "name": name, "uid": uid}


async def test_pods_of_two_controllers_below_one_workload_share_its_group(
    services: Fleet, hand: Hand
) -> None:
    await config_map(hand, "groups")
    await services.start("controller", workload_groups_config_map=f"{hand.namespace}/groups")
    top = await config_map(hand, "top", annotations={"workers": "2"})
    parts = [await config_map(hand, name, top) for name in ("part-a", "part-b")]
    for name, role, owner in (("h", "head", 0), ("w0", "worker", 1), ("w1", "worker", 1)):
        pod = template()
        meta = {"name": name, "labels": {"role": role}, "ownerReferences": [parts[owner]]}
        await hand.api.create("pods", {"metadata": meta, "spec": pod["spec"]}, hand.namespace)

    loads = Workloads(hand)
    name = f"podgroup-{top['uid']}"
    group = await loads.group(name, minMember=3, minTaskMember={"head": 1, "worker": 2})
    assert group["spec"]["queue"] == "default"
    assert group["metadata"]["ownerReferences"] == [top]
    await loads.named(name, 3)
    roles = {
        pod["metadata"]["annotations"]["volcano.sh/task-spec"]
        for pod in (await hand.pods()).values()
    }
    assert roles == {"head", "worker"}
