"""What k8s/ holds: each promise of the deployment that can be read off the files."""

import shlex
from pathlib import Path

import pytest
import yaml

from pumice.deploy import nats_config, nats_secrets
from pumice.local.versions import versions
from services.admission.settings import AdmissionSettings
from shared.api.kinds import KINDS
from shared.contracts.permissions import permissions
from tests.support.manifests import BASE, ROOT, build, named
from tools import write_nats_config

SERVICES = ("admission", "binder", "cache", "controller", "scheduler")
OBJECTS = build(BASE)

each_service = pytest.mark.parametrize("service", SERVICES)


def pod_of(workload: dict) -> dict:
    return workload["spec"]["template"]["spec"]


def deployment(service: str) -> dict:
    return named(OBJECTS, "Deployment", f"pumice-{service}")


def workloads() -> list[dict]:
    return [o for o in OBJECTS if o["kind"] in {"Deployment", "StatefulSet"}]


def test_every_file_is_part_of_the_build() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    files = {str(path.relative_to(BASE)) for path in BASE.rglob("*.yaml")}
    assert files == {*listed, "kustomization.yaml"} - {"../crds"}


def test_every_folder_of_services_has_a_deployment() -> None:
    folders = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert folders == set(SERVICES)


@each_service
def test_a_service_is_one_module_of_the_one_image(service: str) -> None:
    (container,) = pod_of(deployment(service))["containers"]
    assert shlex.join(container["command"]) == f"python -P -m services.{service}"
    assert container["image"] == pod_of(deployment("cache"))["containers"][0]["image"]


@each_service
def test_a_service_has_probes_and_a_disruption_budget(service: str) -> None:
    (container,) = pod_of(deployment(service))["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    budget = named(OBJECTS, "PodDisruptionBudget", f"pumice-{service}")
    assert budget["spec"]["selector"] == deployment(service)["spec"]["selector"]
    assert deployment(service)["spec"]["replicas"] > budget["spec"]["minAvailable"]


@pytest.mark.parametrize("workload", workloads(), ids=lambda o: o["metadata"]["name"])
def test_a_pod_runs_without_any_privilege(workload: dict) -> None:
    pod = pod_of(workload)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "admission"])
def test_a_service_gets_its_own_secret_and_no_other(service: str) -> None:
    pod = pod_of(deployment(service))
    secrets = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    assert secrets == [nats_secrets.secret_name(service)]
    (container,) = pod["containers"]
    assert f"--nats-user={service}" in container["args"]
    assert not any("secretKeyRef" in e.get("valueFrom", {}) for e in container["env"])


def test_the_scheduler_has_no_way_to_the_api_server() -> None:
    assert pod_of(deployment("scheduler"))["automountServiceAccountToken"] is False
    subjects = [
        subject["name"]
        for o in OBJECTS
        if o["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        for subject in o["subjects"]
    ]
    assert sorted(set(subjects)) == [
        "pumice-admission", "pumice-binder", "pumice-cache", "pumice-controller"
    ]  # fmt: skip


def test_admission_needs_no_nats_and_listens_where_its_service_leads() -> None:
    pod = pod_of(deployment("admission"))
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    (container,) = pod["containers"]
    service = named(OBJECTS, "Service", "pumice-admission")
    assert f"--webhook-service-name={service['metadata']['name']}" in container["args"]
    assert f"--webhook-namespace={service['metadata']['namespace']}" in container["args"]
    (port,) = service["spec"]["ports"]
    assert port["port"] == AdmissionSettings().webhook_service_port
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports[port["targetPort"]] == AdmissionSettings().port


def test_no_role_names_everything() -> None:
    for role in (o for o in OBJECTS if o["kind"] in {"Role", "ClusterRole"}):
        for rule in role["rules"]:
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in words, role["metadata"]["name"]
            if "secrets" in rule["resources"]:
                assert (role["kind"], role["metadata"]["name"], rule["verbs"]) in [
                    ("ClusterRole", "pumice-controller", ["get", "create", "delete"]),  # ssh, JP3
                    ("Role", "pumice-admission", ["create"]),
                    ("Role", "pumice-admission", ["get", "patch"]),
                ]
                if rule["verbs"] == ["get", "patch"]:
                    assert rule["resourceNames"] == [AdmissionSettings().certificate_secret]


def test_the_cache_may_list_and_watch_exactly_the_kinds_that_it_publishes() -> None:
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in named(OBJECTS, "ClusterRole", "pumice-cache")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {(kind.group, kind.plural): {"list", "watch"} for kind in KINDS.values()}


def test_the_nats_configuration_is_that_of_the_permissions() -> None:
    assert write_nats_config.FILE.read_text() == write_nats_config.text(), "run `make crds`"


def test_the_nats_configuration_is_made_for_the_cluster_of_the_settings() -> None:
    settings = named(OBJECTS, "ConfigMap", "pumice-settings")["data"]
    assert settings["PUMICE_CLUSTER"] == write_nats_config.CLUSTER
    service = named(OBJECTS, "Service", "pumice-nats")
    port = service["spec"]["ports"][0]["port"]
    assert settings["PUMICE_NATS"] == f"nats://{service['metadata']['name']}:{port}"


def test_the_nats_server_has_every_users_password_from_its_secret() -> None:
    (container,) = pod_of(named(OBJECTS, "StatefulSet", "pumice-nats"))["containers"]
    from_secrets = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]
        for entry in container["env"]
        if "secretKeyRef" in entry["valueFrom"]
    }
    users = permissions(write_nats_config.CLUSTER)
    assert from_secrets == {
        nats_config.password_variable(user): {
            "name": nats_secrets.secret_name(user),
            "key": "password",
        }
        for user in users
    }


def test_the_printed_secrets_are_those_that_the_pods_take() -> None:
    printed = nats_secrets.manifests(namespace="pumice-system", cluster=write_nats_config.CLUSTER)
    names = {secret["metadata"]["name"] for secret in printed}
    assert names == {nats_secrets.secret_name(u) for u in permissions(write_nats_config.CLUSTER)}
    passwords = {secret["stringData"]["password"] for secret in printed}
    assert len(passwords) == len(printed)
    assert all(p.isalnum() and p[0].isalpha() and len(p) >= 40 for p in passwords)


def test_no_manifest_holds_a_secret() -> None:
    assert not [o for o in OBJECTS if o["kind"] == "Secret"]


def test_images_are_those_of_the_versions_file() -> None:
    (nats,) = pod_of(named(OBJECTS, "StatefulSet", "pumice-nats"))["containers"]
    assert nats["image"] == versions().images["nats-server"]


def test_everything_namespaced_is_in_the_namespace() -> None:
    cluster_wide = {"CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding"}
    for o in OBJECTS:
        expected = None if o["kind"] in cluster_wide else "pumice-system"
        assert o["metadata"].get("namespace") == expected, o["metadata"]["name"]


def test_a_pod_meets_each_policy_and_service_that_is_made_for_it() -> None:
    pods = {w["metadata"]["name"]: w["spec"]["template"]["metadata"]["labels"] for w in workloads()}

    def selected(selector: dict) -> set[str]:
        wanted = selector.get("matchLabels", selector if "matchExpressions" not in selector else {})
        return {
            name
            for name, labels in pods.items()
            if wanted.items() <= labels.items()
            and all(labels[e["key"]] in e["values"] for e in selector.get("matchExpressions", []))
        }

    services = {f"pumice-{service}" for service in SERVICES}
    metrics = named(OBJECTS, "Service", "pumice-metrics")["spec"]["selector"]
    assert selected(metrics) == services
    assert selected(named(OBJECTS, "Service", "pumice-nats")["spec"]["selector"]) == {"pumice-nats"}
    policies = {
        o["metadata"]["name"]: selected(o["spec"]["podSelector"])
        for o in OBJECTS
        if o["kind"] == "NetworkPolicy"
    }
    assert policies == {
        "pumice-nothing-else": set(pods),
        "pumice-services-to-nats": services,
        "pumice-services-to-api-server": services - {"pumice-scheduler"},
        "pumice-admission-from-api-server": {"pumice-admission"},
        "pumice-nats-from-services": {"pumice-nats"},
        "pumice-metrics-from-cluster": services,
    }


@pytest.mark.parametrize(
    "overlay", sorted((ROOT / "k8s" / "overlays").iterdir()), ids=lambda p: p.name
)
def test_an_overlays_patches_find_what_they_patch(overlay: Path) -> None:
    kustomization = yaml.safe_load((overlay / "kustomization.yaml").read_text())
    assert kustomization["resources"] == ["../../base"]
    for patch in kustomization["patches"]:
        named(OBJECTS, patch["target"]["kind"], patch["target"]["name"])
