"""What k8s/ holds: each promise of the deployment that can be read off the files."""

import argparse
import json
import re
import shlex
import textwrap
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography import x509

from pumice.cli import events
from pumice.deploy import nats_config, nats_secrets
from pumice.directory import SUBSCRIBER
from pumice.events.server import IN_CLUSTER, SECRET
from pumice.local import nats as local_nats
from pumice.local.versions import versions
from services.admission.settings import AdmissionSettings
from services.cache.kinds import rows
from services.cache.settings import CacheSettings
from services.visibility.settings import VisibilitySettings
from shared.contracts.permissions import permissions
from shared.contracts.streams import Storage, all_streams, streams
from shared.model.quantity import milli, units
from tests.support.manifests import BASE, ROOT, build, named
from tools import write_manifests

SERVICES = ("admission", "binder", "cache", "controller", "declarer", "scheduler", "visibility")
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
    assert folders - {"accounting"} == set(SERVICES), "overlays/accounting adds the other one"


@each_service
def test_a_service_is_one_module_of_the_one_image(service: str) -> None:
    (container,) = pod_of(deployment(service))["containers"]
    assert shlex.join(container["command"]) == f"python -P -m services.{service}"
    assert container["image"] == pod_of(deployment("cache"))["containers"][0]["image"]


A_STARVED_START_S = 150  # starts of 18 to 70 s were seen on a node that was unpacking images


@each_service
def test_a_service_has_probes_and_a_disruption_budget(service: str) -> None:
    (container,) = pod_of(deployment(service))["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    alone = "/api,authentication,certificate" if service == "visibility" else ""
    assert container["readinessProbe"]["httpGet"]["path"] == f"/readyz{alone}"
    startup = container["startupProbe"]
    assert startup["httpGet"] == container["livenessProbe"]["httpGet"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= A_STARVED_START_S
    budget = named(OBJECTS, "PodDisruptionBudget", f"pumice-{service}")
    assert budget["spec"]["selector"] == deployment(service)["spec"]["selector"]
    assert deployment(service)["spec"]["replicas"] > budget["spec"]["minAvailable"]


def test_an_installation_fits_on_a_node_of_two_cpus() -> None:
    requested = [
        (workload["spec"]["replicas"], container["resources"]["requests"])
        for workload in workloads()
        for container in pod_of(workload)["containers"]
    ]
    assert sum(count * milli(each["cpu"]) for count, each in requested) <= 800
    assert sum(count * units(each["memory"]) for count, each in requested) <= 2.5 * 2**30


@pytest.mark.parametrize("workload", workloads(), ids=lambda o: o["metadata"]["name"])
def test_what_schedules_others_comes_before_them(workload: dict) -> None:
    assert pod_of(workload)["priorityClassName"] == "system-cluster-critical"


def test_the_name_of_nats_leads_to_an_address_that_outlives_its_pod() -> None:
    service = named(OBJECTS, "Service", "pumice-nats")
    assert service["spec"].get("clusterIP") != "None"


@pytest.mark.parametrize("workload", workloads(), ids=lambda o: o["metadata"]["name"])
def test_a_pod_runs_without_any_privilege(workload: dict) -> None:
    pod = pod_of(workload)
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


def mounted_credentials(pod: dict) -> str:
    """Return the Secret of a pod's NATS user; only the authority stands beside its files."""
    (volume,) = (v for v in pod["volumes"] if v["name"] == "nats-credentials")
    own, tls = (source["secret"] for source in volume["projected"]["sources"])
    only_authority = [{"key": "ca.crt", "path": "ca.crt"}]
    assert tls == {"name": nats_secrets.TLS, "items": only_authority}
    assert own.keys() == {"name"}
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    settings = named(OBJECTS, "ConfigMap", "pumice-settings")["data"]
    assert settings["PUMICE_NATS_CA"] == f"{mounts['nats-credentials']}/ca.crt"
    assert {"configMapRef": {"name": "pumice-settings"}} in container["envFrom"]
    return own["name"]


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "admission"])
def test_a_service_gets_its_own_secret_and_no_other(service: str) -> None:
    pod = pod_of(deployment(service))
    secrets = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    assert secrets == ([nats_secrets.STATE_KEY] if service in ("cache", "controller") else [])
    assert mounted_credentials(pod) == nats_secrets.secret_name(service)
    (container,) = pod["containers"]
    assert f"--nats-user={service}" in container["args"]
    assert not any("secretKeyRef" in e.get("valueFrom", {}) for e in container["env"])


def test_the_scheduler_and_the_declarer_have_no_way_to_the_api_server() -> None:
    for service in ("scheduler", "declarer"):
        assert pod_of(deployment(service))["automountServiceAccountToken"] is False
    subjects = [
        subject["name"]
        for o in OBJECTS
        if o["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        for subject in o["subjects"]
        if subject["kind"] == "ServiceAccount"
    ]
    services = ("admission", "binder", "cache", "controller", "visibility")
    assert sorted(set(subjects)) == [f"pumice-{service}" for service in services]


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
                    ("ClusterRole", "pumice-controller", ["create"]),  # ssh, JP3
                    ("Role", "pumice-controller", ["get"]),  # of a fabric manager, H03
                    ("Role", "pumice-admission", ["create"]),
                    ("Role", "pumice-admission", ["get", "patch"]),
                    ("Role", "pumice-visibility", ["create"]),
                    ("Role", "pumice-visibility", ["get", "patch"]),
                ]
                if rule["verbs"] == ["get", "patch"]:
                    certificates = (AdmissionSettings, VisibilitySettings)
                    assert rule["resourceNames"] in [[c().certificate_secret] for c in certificates]


def test_the_cache_may_list_and_watch_exactly_the_kinds_that_it_publishes() -> None:
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in named(OBJECTS, "ClusterRole", "pumice-cache")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "watch" in rule["verbs"]
    }
    assert granted == {(r.kind.group, r.kind.plural): {"list", "watch"} for r in rows(["volcano"])}


def test_the_cache_may_write_its_two_leases_and_make_their_namespace() -> None:
    rules = named(OBJECTS, "ClusterRole", "pumice-cache")["rules"]
    defaults = CacheSettings()
    names = [
        defaults.leader_elect_resource_name,
        defaults.leader_elect_controller_resource_name,
    ]
    assert [rule for rule in rules if "watch" not in rule["verbs"]] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": names,
            "verbs": ["get", "patch"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]},
    ]
    policy = named(OBJECTS, "ValidatingAdmissionPolicy", "pumice-cache-leases")
    (validation,) = policy["spec"]["validations"]
    assert str(names) in validation["expression"]
    assert f"== '{defaults.leader_elect_resource_namespace}'" in validation["expression"]


def test_to_remove_pumice_does_not_remove_the_namespace_of_volcano() -> None:
    namespaces = {o["metadata"]["name"] for o in OBJECTS if o["kind"] == "Namespace"}
    assert namespaces == {"pumice-system"}


def test_the_liveness_of_nats_sees_a_stream_that_cannot_write() -> None:
    """With `js-enabled-only` a server that met a full disk would be alive for ever."""
    (container,) = pod_of(named(OBJECTS, "StatefulSet", "pumice-nats"))["containers"]
    probe = container["livenessProbe"]
    assert probe["httpGet"]["path"] == "/healthz"
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 300, "it replays its files"


def test_nats_collects_garbage_before_it_meets_its_memory_limit() -> None:
    (container,) = pod_of(named(OBJECTS, "StatefulSet", "pumice-nats"))["containers"]
    (given,) = (e["value"] for e in container["env"] if e["name"] == "GOMEMLIMIT")
    limit = float(container["resources"]["limits"]["memory"].removesuffix("Gi")) * 1024
    soft = float(given.removesuffix("MiB"))
    held = (
        nats_config.NatsServerConfig(name="n", cluster="c", store_dir="/data").memory_bytes / 2**20
    )
    assert held < soft <= 0.9 * limit, "above the streams in memory, below the limit"


def test_the_streams_are_full_before_the_disk_is() -> None:
    declared = all_streams(streams(write_manifests.CLUSTER))
    bound = sum(s.max_bytes for s in declared if s.storage is Storage.FILE)
    memory = sum(s.max_bytes for s in declared if s.storage is Storage.MEMORY)
    (claim,) = named(OBJECTS, "StatefulSet", "pumice-nats")["spec"]["volumeClaimTemplates"]
    volume = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    server = nats_config.NatsServerConfig(name="n", cluster="c", store_dir="/data")
    assert 2 * bound <= server.file_bytes, "blocks with holes and indexes take room, too"
    assert server.file_bytes * 1.2 <= volume * nats_config.GIB
    assert memory <= server.memory_bytes
    local = json.loads(nats_config.render(local_server(), {}))["jetstream"]
    assert 2 * bound <= local["max_file_store"]
    assert memory <= local["max_memory_store"]


def local_server() -> nats_config.NatsServerConfig:
    """Return the settings of a local stack's server."""
    return nats_config.NatsServerConfig(
        name="pumice-local",
        cluster="local",
        store_dir="/x",
        memory_bytes=local_nats.MEMORY_MAX,
        file_bytes=local_nats.FILE_MAX,
    )


def test_the_nats_configuration_is_that_of_the_permissions() -> None:
    assert write_manifests.NATS_FILE.read_text() == write_manifests.nats_config(), "run `make crds`"


def test_the_nats_configuration_is_made_for_the_cluster_of_the_settings() -> None:
    settings = named(OBJECTS, "ConfigMap", "pumice-settings")["data"]
    assert settings["PUMICE_CLUSTER"] == write_manifests.CLUSTER
    service = named(OBJECTS, "Service", "pumice-nats")
    port = service["spec"]["ports"][0]["port"]
    assert settings["PUMICE_NATS"] == f"tls://{service['metadata']['name']}:{port}"


def test_the_nats_server_has_every_users_password_from_its_secret() -> None:
    (container,) = pod_of(named(OBJECTS, "StatefulSet", "pumice-nats"))["containers"]
    from_secrets = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]
        for entry in container["env"]
        if "secretKeyRef" in entry.get("valueFrom", {})
    }
    users = permissions(write_manifests.CLUSTER)
    assert from_secrets == {
        nats_config.password_variable(user): {
            "name": nats_secrets.secret_name(user),
            "key": "password",
        }
        for user in users
    }


def test_the_printed_secrets_are_those_that_the_pods_take() -> None:
    made = nats_secrets.manifests(namespace="pumice-system", cluster=write_manifests.CLUSTER)
    *printed, key = made
    assert key["metadata"]["name"] == nats_secrets.STATE_KEY
    assert len(key["stringData"]["key"]) == 64
    names = {secret["metadata"]["name"] for secret in printed}
    assert names == {nats_secrets.secret_name(u) for u in permissions(write_manifests.CLUSTER)}
    passwords = {secret["stringData"]["password"] for secret in printed}
    assert len(passwords) == len(printed)
    assert all(p.isalnum() and p[0].isalpha() and len(p) >= 40 for p in passwords)


def test_the_nats_server_asks_for_tls_with_the_certificate_that_is_mounted() -> None:
    text = named(OBJECTS, "ConfigMap", "pumice-nats")["data"]["nats.conf"]
    files = {"cert_file": "/etc/nats-tls/tls.crt", "key_file": "/etc/nats-tls/tls.key"}
    assert f'"tls": {json.dumps(files, indent=2)}' in textwrap.dedent(text).replace("\n  ", "\n")
    pod = pod_of(named(OBJECTS, "StatefulSet", "pumice-nats"))
    (volume,) = (v for v in pod["volumes"] if v["name"] == "certificate")
    assert volume["secret"]["secretName"] == nats_secrets.TLS
    paths = {f"/etc/nats-tls/{item['path']}" for item in volume["secret"]["items"]}
    assert paths == set(files.values())
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["certificate"] == "/etc/nats-tls"


def test_the_printed_certificate_is_for_the_names_of_the_service(capsys) -> None:
    nats_secrets.main(["--only-certificate"])
    (secret,) = yaml.safe_load_all(capsys.readouterr().out)
    service = named(OBJECTS, "Service", "pumice-nats")["metadata"]
    assert (secret["metadata"]["name"], secret["type"]) == ("pumice-nats-tls", "kubernetes.io/tls")
    found = x509.load_pem_x509_certificate(secret["stringData"]["tls.crt"].encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    served = set(names.get_values_for_type(x509.DNSName))
    qualified = f"{service['name']}.{service['namespace']}"
    assert {service["name"], qualified, f"{qualified}.svc"} < served
    settings = named(OBJECTS, "ConfigMap", "pumice-settings")["data"]
    for url in (settings["PUMICE_NATS"], IN_CLUSTER):
        assert urlsplit(url).hostname in served


def test_for_a_server_of_ones_own_the_authority_is_taken_over(capsys, tmp_path) -> None:
    (tmp_path / "ca.crt").write_text("its authority")
    nats_secrets.main(["--server-ca", str(tmp_path / "ca.crt")])
    *users, tls = yaml.safe_load_all(capsys.readouterr().out)
    assert tls["metadata"]["name"] == nats_secrets.TLS
    assert tls["stringData"] == {"ca.crt": "its authority"}
    assert len(users) == len(permissions("main")) + 1


def test_no_manifest_holds_a_secret() -> None:
    assert not [o for o in OBJECTS if o["kind"] == "Secret"]


def test_images_are_those_of_the_versions_file() -> None:
    (nats,) = pod_of(named(OBJECTS, "StatefulSet", "pumice-nats"))["containers"]
    assert nats["image"] == versions().images["nats-server"]


def test_each_image_has_a_version_and_a_digest_in_the_one_place_for_digests() -> None:
    component = yaml.safe_load((ROOT / "k8s" / "images" / "kustomization.yaml").read_text())
    pinned = {image["name"]: image for image in component["images"]}
    for image in pinned.values():
        assert image.keys() == {"name", "newName", "digest"}, "a tag could move"
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"])
    everything = [*OBJECTS, *build(ROOT / "k8s" / "event-webhook")]
    pods = [pod_of(o) for o in everything if "template" in o.get("spec", {})]
    used = {
        container["image"].rpartition(":")
        for pod in pods
        for container in (*pod["containers"], *pod.get("initContainers", []))
    }
    assert {name for name, _, _ in used} == pinned.keys()
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", tag) for _, _, tag in used), "no latest"
    written = {
        path
        for path in (ROOT / "k8s").rglob("*.yaml")
        if path.parent.name != "crds"
        and not {"chart", "agent-scheduler", "accounting"} & {*path.parts}  # images of the base
        and re.search(r"^\s*(- )?image: ", path.read_text(), re.MULTILINE)
    }
    assert len(written) == len(pods), "an image that this test does not see"


def test_everything_namespaced_is_in_the_namespace() -> None:
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    roles = {"ClusterRole", "ClusterRoleBinding"}
    cluster_wide = {"APIService", "CustomResourceDefinition", "Namespace", *roles, *policies}
    of_kube_system = {("Role", "pumice-visibility"), ("RoleBinding", "pumice-visibility")}
    for o in OBJECTS:
        expected = None if o["kind"] in cluster_wide else "pumice-system"
        is_twofold = (o["kind"], o["metadata"]["name"]) in of_kube_system
        others = {"kube-system"} if is_twofold else set()
        assert o["metadata"].get("namespace") in {expected, *others}, o["metadata"]["name"]


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
        "pumice-services-to-api-server": services - {"pumice-scheduler", "pumice-declarer"},
        "pumice-admission-from-api-server": {"pumice-admission"},
        "pumice-visibility-from-api-server": {"pumice-visibility"},
        "pumice-nats-from-services": {"pumice-nats"},
        "pumice-metrics-from-cluster": services,
    }


def test_the_webhook_runs_a_command_line_that_there_is_with_the_secret_where_it_is_looked_for():
    objects = build(ROOT / "k8s" / "event-webhook")
    pod = pod_of(named(objects, "Deployment", "pumice-event-webhook"))
    (container,) = pod["containers"]
    assert shlex.join(container["command"]) == "python -P -m pumice events"
    assert container["image"] == pod_of(deployment("cache"))["containers"][0]["image"]
    parser = argparse.ArgumentParser()
    events.add_arguments(parser, {})
    given = parser.parse_args(container["args"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert given.state.is_relative_to(mounts["place"])
    assert mounts["nats-credentials"] == str(SECRET)
    assert mounted_credentials(pod) == nats_secrets.secret_name(SUBSCRIBER)
    assert SUBSCRIBER in permissions("main")
    urls = named(objects, "ConfigMap", "pumice-event-webhook")["data"]
    assert given.webhook == "$(WEBHOOK_URL)"
    assert urls["WEBHOOK_URL"].startswith("http://")
