"""Slips in pod templates are warned of in the API server's words, or refused by a flag."""

from typing import Any

import msgspec
import pytest

from services.admission.rules.fields import CLAIM, TEMPLATE, Schema
from tests.unit.admission.asking import ask, paths, sparse_job, task

REF = "#/components/schemas/"
# As /openapi/v3/api/v1 has it, of which a little is enough here.
OPENAPI = {
    TEMPLATE: {
        "properties": {
            "metadata": {"allOf": [{"$ref": REF + "Meta"}], "default": {}},
            "spec": {"allOf": [{"$ref": REF + "PodSpec"}], "default": {}},
        }
    },
    "Meta": {"properties": {"labels": {"additionalProperties": {"type": "string"}}}},
    "PodSpec": {
        "properties": {
            "containers": {"type": "array", "items": {"allOf": [{"$ref": REF + "Container"}]}},
            "nodeSelector": {"additionalProperties": {"type": "string"}},
            "overhead": {"additionalProperties": {"$ref": REF + "Quantity"}},
            "beyond": {"$ref": REF + "that-is-not-there"},
            "open": {"x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}},
        }
    },
    "Container": {
        "properties": {
            "name": {"type": "string"},
            "image": {"type": "string"},
            "resources": {"properties": {"limits": {"additionalProperties": {}}}},
        }
    },
    "Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    CLAIM: {"properties": {"accessModes": {"items": {"type": "string"}}, "resources": {}}},
}
SCHEMAS = msgspec.convert(OPENAPI, dict[str, Schema])


def templated(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "i", **spec.pop("container", {})}]
    return sparse_job(task("a"), task("b", template={"spec": {"containers": containers, **spec}}))


AT = "spec.tasks[1].template.spec"


@pytest.mark.parametrize(
    ("given", "slips"),
    [
        (templated(), []),
        (templated(nodeSelector={"any/thing": "x"}, overhead={"cpu": "1"}), []),
        (templated(open={"whatever": {"it": "is"}}, beyond={"who": "knows"}), []),
        (templated(nodeSelektor={}), [f"{AT}.nodeSelektor"]),
        (templated(container={"imagePullPolice": 1}), [f"{AT}.containers[0].imagePullPolice"]),
        (
            templated(container={"resources": {"limit": {}, "limits": {"cpu": 1}}}),
            [f"{AT}.containers[0].resources.limit"],
        ),
    ],
    ids=str,
)
def test_a_field_that_kubernetes_does_not_know_is_warned_of(given, slips: list[str]) -> None:
    verdict = ask("/jobs/validate", given, schemas=SCHEMAS)
    assert verdict.allowed
    assert list(verdict.hints) == [f'unknown field "{path}"' for path in slips]
    strict = ask("/jobs/validate", given, schemas=SCHEMAS, refuse_unknown_fields=True)
    assert strict.allowed == (not slips)
    assert paths(strict) == slips


def test_a_claim_of_a_job_is_looked_at_as_well() -> None:
    volume = {"mountPath": "/d", "volumeClaim": {"accessMode": [], "accessModes": ["x"]}}
    verdict = ask("/jobs/validate", sparse_job(volumes=[volume]), schemas=SCHEMAS)
    assert list(verdict.hints) == ['unknown field "spec.volumes[0].volumeClaim.accessMode"']


def test_without_the_api_servers_openapi_nothing_is_said() -> None:
    verdict = ask("/jobs/validate", templated(nodeSelektor={}), refuse_unknown_fields=True)
    assert verdict.allowed
    assert not verdict.hints


def test_what_was_stored_before_is_neither_warned_of_nor_refused_again() -> None:
    old = templated(nodeSelektor={})
    new = {**old, "spec": {**old["spec"], "priorityClassName": "p"}}
    strict = {"schemas": SCHEMAS, "refuse_unknown_fields": True}
    verdict = ask("/jobs/validate", new, operation="UPDATE", old=old, **strict)
    assert not [path for path in paths(verdict) if "nodeSelektor" in path]


def test_many_slips_are_told_in_part() -> None:
    many = {f"field{number}": 1 for number in range(1000)}
    assert len(ask("/jobs/validate", templated(**many), schemas=SCHEMAS).hints) == 20


def test_the_template_of_a_cron_job_is_warned_of_when_it_is_made() -> None:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": templated(nodeSelektor={})["spec"]}}
    cron = {"metadata": {"name": "c", "namespace": "ns"}, "spec": spec}
    verdict = ask("/cronjobs/validate", cron, schemas=SCHEMAS)
    assert verdict.allowed
    assert list(verdict.hints) == [
        'unknown field "spec.jobTemplate.spec.tasks[1].template.spec.nodeSelektor"'
    ]
