"""Views without their bounds, for whoever names the faults himself."""

import msgspec
import pytest

from shared.api import kinds
from shared.api.batch import Job
from shared.api.lenient import lenient
from shared.api.scheduling import PodGroup

WITH_VIEWS = [kind for kind in kinds.KINDS.values() if kind.type is not None]


@pytest.mark.parametrize("kind", WITH_VIEWS, ids=lambda kind: kind.token)
def test_every_view_has_a_twin_with_the_same_fields_and_defaults(kind):
    empty = lenient({}, kind.type)
    strict = msgspec.structs.fields(kind.type)
    assert [f.name for f in msgspec.structs.fields(type(empty))] == [f.name for f in strict]


def test_values_beyond_their_bounds_are_read():
    tasks = [{"replicas": -1, "policies": [{"event": "Boom"}], "partitionPolicy": {}}]
    job = lenient({"spec": {"tasks": tasks, "volumes": [{}]}}, Job)
    (task,) = job.spec.tasks
    assert (task.replicas, task.policies[0].event) == (-1, "Boom")
    assert (task.partition_policy.total_partitions, job.spec.volumes[0].mount_path) == (0, "")


def test_names_on_the_wire_and_properties_are_those_of_the_view():
    group = lenient(
        {
            "metadata": {"name": "a", "namespace": "b"},
            "status": {"conditions": [{"transitionID": "t"}]},
        },
        PodGroup,
    )
    assert group.metadata.key == "b/a"
    assert group.status.conditions[0].transition_id == "t"


def test_a_null_is_as_good_as_nothing():
    assert lenient({"spec": {"tasks": None, "queue": None}}, Job).spec.queue == "default"


def test_a_value_of_another_type_is_refused_with_its_path():
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.tasks\[0\]\.replicas"):
        lenient({"spec": {"tasks": [{"replicas": "two"}]}}, Job)
