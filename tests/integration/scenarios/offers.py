"""Objects as Go clients write them, offered to a cluster: taken, changed, or refused with words."""

from typing import Any

import pytest

from tests.integration.scenarios.scene import Object, Scene
from tests.support.api import ApiError, path

VERSIONS = {
    "jobs": ("batch.volcano.sh/v1alpha1", "Job"),
    "cronjobs": ("batch.volcano.sh/v1alpha1", "CronJob"),
    "jobtemplates": ("flow.volcano.sh/v1alpha1", "JobTemplate"),
    "jobflows": ("flow.volcano.sh/v1alpha1", "JobFlow"),
    "queues": ("scheduling.volcano.sh/v1beta1", "Queue"),
    "podgroups": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    "hypernodes": ("topology.volcano.sh/v1alpha1", "HyperNode"),
}


def whole(plural: str, name: str, spec: Object, **annotations: str) -> Object:
    """Return an object as a Go client writes it: with the nulls and empty structs of Go."""
    version, kind = VERSIONS[plural]
    metadata = {"name": name, "creationTimestamp": None, "annotations": annotations}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": _EMPTY.get(plural, {}),
    }


_EMPTY: dict[str, Object] = {
    "jobs": {"state": {"lastTransitionTime": None}},
    "queues": {"allocated": None, "reservation": {}},
}


async def refused(scene: Scene, plural: str, body: Object, *words: str) -> None:
    """Expect that an object is refused with all of these words."""
    with pytest.raises(ApiError) as refusal:
        await scene.api.create(plural, body, scene.namespace)
    for word in words:
        assert word in refusal.value.message


async def taken(scene: Scene, plural: str, body: Object) -> Object:
    """Expect that an object is taken; return it as it is stored. It is deleted in the end."""
    made = await scene.api.create(plural, body, scene.namespace)
    if plural in {"queues", "hypernodes"}:
        scene.also(plural, body["metadata"]["name"])
    return made


async def put(scene: Scene, plural: str, name: str, **spec: Any) -> Object:
    """Write a whole object back with changes of its spec, as `kubectl replace` does."""
    for _ in range(10):
        whole_one = await scene.api.get(plural, scene.namespace, name)
        whole_one["spec"] |= spec
        try:
            return await scene.api.request("PUT", path(plural, scene.namespace, name), whole_one)
        except ApiError as error:
            if error.status != 409:
                raise
    raise AssertionError("somebody writes it all the time")
