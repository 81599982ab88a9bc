"""The Helm chart is made of k8s/base; `make helm-check` shows what helm makes of it."""

import re

import pytest
import yaml

from services.admission.settings import AdmissionSettings
from services.binder.settings import BinderSettings
from services.cache.settings import CacheSettings
from services.controller.settings import ControllerSettings
from services.scheduler.settings import SchedulerSettings
from shared.runtime.settings import fields_of
from tests.support.manifests import BASE, WORKLOADS, build, named
from tools import write_chart

MADE = write_chart.files()
VALUES = yaml.safe_load(MADE["values.yaml"])
SETTINGS = {
    write_chart.AGENT: SchedulerSettings,
    "admission": AdmissionSettings,
    "binder": BinderSettings,
    "cache": CacheSettings,
    "controller": ControllerSettings,
    "scheduler": SchedulerSettings,
}


def test_the_chart_is_what_the_base_makes_it() -> None:
    there = {
        path.relative_to(write_chart.CHART).as_posix(): path.read_text()
        for path in write_chart.CHART.rglob("*")
        if path.is_file()
    }
    assert there == MADE, "run `make crds` and commit the result"


def test_every_value_that_a_template_asks_for_has_a_default() -> None:
    templates = "".join(text for name, text in MADE.items() if name.startswith("templates/"))
    asked = set(re.findall(r"\.Values\.(\w+)\.(\w+)", templates))
    assert len(asked) > 30
    assert not [(part, name) for part, name in asked if name not in VALUES[part]]


def test_every_default_is_asked_for_by_a_template() -> None:
    refuses = "templates/refusals.yaml"
    templates = "".join(
        text for name, text in MADE.items() if name.startswith("templates/") and name != refuses
    )
    by_service = {"_ns", "_tolerations", "_affinity"}
    names = [name for part in VALUES.values() for name in part]
    ends = [name for name in names if any(name.endswith(end) for end in by_service)]
    assert not [name for name in names if name not in templates and name not in ends]
    assert len(ends) == 3 * (len(write_chart.SERVICES) + 4), (
        "and accounting, single pods, NATS, all"
    )


def test_the_default_values_are_those_of_the_base() -> None:
    base = build(BASE)
    for service in (*write_chart.SERVICES, "nats"):
        (workload,) = (
            o
            for o in base
            if o["kind"] in WORKLOADS and o["metadata"]["name"] == f"pumice-{service}"
        )
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert VALUES["custom"][f"{service}_resources"] == container["resources"]
    image = named(base, "Deployment", "pumice-cache")["spec"]["template"]["spec"]["containers"][0]
    basic = VALUES["basic"]
    assert image["image"] == f"{basic['image_name']}:{basic['image_tag_version']}"


def test_the_overlay_for_single_pods_may_not_add_what_the_chart_has_no_value_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(write_chart.FLAGS, "binder", {})
    with pytest.raises(write_chart.AbsentError, match=r"binder: no value for .*scheduler-name"):
        write_chart.templates()


def test_a_second_installation_has_no_object_without_namespace_in_common_with_the_first() -> None:
    kinds = {"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "APIService"}
    seen = 0
    for name, text in write_chart.templates().items():
        for document in text.split("---\n"):
            if (kind := re.search(r"^kind: (\w+)$", document, re.MULTILINE)) and kind[1] in kinds:
                seen += 1
                of_first = f"not .Values.custom.{write_chart.SECOND}" in document
                assert of_first or '{{ include "pumice.suffix" . }}' in document, name
    assert seen >= 16


def test_each_object_that_a_cluster_has_once_is_in_the_base() -> None:
    base = write_chart.templates()
    for place in write_chart.OF_FIRST:
        name, _, own = place.partition(":")
        assert name in base
        assert not own or f"  name: {own}\n" in base[name]


def test_flags_of_a_second_installation_are_those_of_its_services() -> None:
    for service, flags in write_chart.OF_SECOND.items():
        known = {field.name.replace("_", "-") for field in fields_of(SETTINGS[service])}
        assert flags.keys() <= known


@pytest.mark.parametrize("service", SETTINGS)
def test_a_flag_that_the_chart_gives_is_one_of_the_service(service: str) -> None:
    flags = {field.name.replace("_", "-") for field in fields_of(SETTINGS[service])}
    assert write_chart.FLAGS[service]
    assert write_chart.FLAGS[service].keys() <= flags


def test_a_place_that_is_not_in_the_base_ends_the_run() -> None:
    with pytest.raises(write_chart.AbsentError, match="is there 0 times"):
        write_chart.template("settings.yaml", "data: {}")


def test_only_the_namespace_and_the_crds_are_left_to_helm() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert set(listed) - write_chart.templates().keys() == {"../crds", "namespace.yaml"}
    for name, text in write_chart.templates().items():
        code = [line for line in text.splitlines() if not line.startswith("#")]
        assert "pumice-system" not in "\n".join(code), name
