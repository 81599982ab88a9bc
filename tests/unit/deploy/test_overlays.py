"""What the overlays of k8s/ promise, as far as it can be read off the files."""

from pathlib import Path

import pytest
import yaml

from pumice.deploy import nats_secrets
from services.cache.settings import CacheSettings
from services.declarer.settings import DeclarerSettings
from services.scheduler.settings import SchedulerSettings
from shared.contracts.streams import all_streams, streams
from shared.model.quantity import units
from shared.runtime.settings import load
from tests.support.manifests import (
    BASE,
    OVERLAYS,
    WORKLOADS,
    build,
    flags_of,
    key_of,
    meant,
    named,
    overlay,
)
from tools import write_manifests


@pytest.mark.parametrize("folder", sorted(OVERLAYS.iterdir()), ids=lambda p: p.name)
def test_an_overlays_patches_find_what_they_patch(folder: Path) -> None:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    listed = kustomization["resources"][0]
    below = build(BASE) if listed == "../../base" else overlay(folder / listed)
    adds = kustomization["resources"][1:] or kustomization.get("components") == ["../../images"]
    assert kustomization.get("patches") or adds
    for patch in kustomization.get("patches", []):
        assert [o for o in below if meant(patch["target"], o)], patch["target"]


def test_for_development_there_is_one_pod_of_each_service_and_no_volume() -> None:
    objects = overlay(OVERLAYS / "dev")
    workloads = [o for o in objects if o["kind"] in WORKLOADS]
    assert {o["spec"]["replicas"] for o in workloads} == {1}
    assert not [o for o in objects if o["kind"] == "PodDisruptionBudget"]
    servers = named(objects, "StatefulSet", "pumice-nats")["spec"]
    assert "volumeClaimTemplates" not in servers
    (data,) = (v for v in servers["template"]["spec"]["volumes"] if v["name"] == "data")
    assert "emptyDir" in data
    settings = named(objects, "ConfigMap", "pumice-settings")["data"]
    assert (
        load(DeclarerSettings, service="declarer", argv=[], environ=settings).log_level == "debug"
    )


def test_no_two_pods_of_one_service_are_on_one_node_where_nodes_may_be_lost() -> None:
    objects = overlay(OVERLAYS / "ha")
    for o in (o for o in objects if o["kind"] == "Deployment"):
        (spread,) = o["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (1, "DoNotSchedule")
        budget = named(objects, "PodDisruptionBudget", o["metadata"]["name"])["spec"]
        assert o["spec"]["replicas"] > budget["minAvailable"]
        assert spread["matchLabelKeys"] == ["pod-template-hash"]
    assert named(objects, "StatefulSet", "pumice-nats")["spec"]["replicas"] == 3


def test_every_image_comes_from_the_registry_with_its_credentials() -> None:
    for o in (o for o in overlay(OVERLAYS / "registry") if o["kind"] in WORKLOADS):
        pod = o["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "pumice-registry"}]
        for container in pod["containers"]:
            assert container["image"].startswith("registry.example.com/")
            assert ":" in container["image"], "the version stays that of the base"


def test_the_scheduler_of_single_pods_has_the_pods_that_cache_and_binder_serve_too() -> None:
    assert write_manifests.AGENT_FILE.read_text() == write_manifests.agent_scheduler()
    objects = overlay(OVERLAYS / "agent-scheduler")
    given = flags_of(objects, "agent-scheduler")
    singles = load(SchedulerSettings, service="scheduler", argv=given, environ={})
    assert singles.single_pods
    for service in ("binder", "cache"):
        given = flags_of(objects, service)
        assert f"--scheduler-name=volcano,{singles.scheduler_name[0]}" in given
    pods = named(objects, "Deployment", "pumice-agent-scheduler")["spec"]
    labels = pods["selector"]["matchLabels"]
    assert labels.items() <= pods["template"]["metadata"]["labels"].items()
    others = named(objects, "Deployment", "pumice-scheduler")["spec"]["selector"]["matchLabels"]
    assert labels != others, "each Deployment has pods of its own"
    budget = named(objects, "PodDisruptionBudget", "pumice-agent-scheduler")["spec"]
    assert budget["selector"]["matchLabels"] == labels


def test_a_second_scheduler_has_names_leases_and_rights_of_its_own() -> None:
    first, second = (overlay(OVERLAYS / f"{which}-of-two") for which in ("first", "second"))
    apart = [o for o in second if o["kind"] != "CustomResourceDefinition"]
    keys = {key_of(o) for o in first}
    assert not [key for o in apart if (key := key_of(o)) in keys]
    assert "pumice-system" not in yaml.safe_dump_all(apart)
    given = flags_of(second, "cache")
    cache = load(CacheSettings, service="cache", argv=given, environ={})
    own = [cache.leader_elect_resource_name, cache.leader_elect_controller_resource_name]
    leases = [
        rule["resourceNames"]
        for rule in named(second, "ClusterRole", "pumice-cache-second")["rules"]
        if "resourceNames" in rule
    ]
    assert leases == [own]
    policy = named(second, "ValidatingAdmissionPolicy", "pumice-cache-leases-second")["spec"]
    assert str(own) in policy["validations"][0]["expression"]
    for kind in ("ClusterRoleBinding", "ValidatingAdmissionPolicyBinding"):
        for binding in (o for o in second if o["kind"] == kind):
            meant_by = binding.get("roleRef", {}).get("name") or binding["spec"]["policyName"]
            assert named(second, kind.removesuffix("Binding"), meant_by)


def test_controllers_and_webhooks_of_the_first_scheduler_serve_the_second() -> None:
    first, second = (overlay(OVERLAYS / f"{which}-of-two") for which in ("first", "second"))
    scheduler = load(
        SchedulerSettings, service="scheduler", argv=flags_of(second, "scheduler"), environ={}
    )
    names = ("volcano", *scheduler.scheduler_name)
    assert names == ("volcano", scheduler.scheduler_sharding_name)
    for service in ("admission", "cache", "controller"):
        assert f"--scheduler-name={','.join(names)}" in flags_of(first, service)
    rules = named(first, "ClusterRole", "pumice-controller")["rules"]
    (leases,) = (rule["resourceNames"] for rule in rules if rule["resources"] == ["leases"])
    assert tuple(leases) == names


OF_THREE = overlay(OVERLAYS / "nats-of-three")


def test_three_nats_servers_find_each_other_by_names_that_their_certificate_has() -> None:
    assert write_manifests.ROUTES_FILE.read_text() == write_manifests.nats_of_three()
    servers = named(OF_THREE, "StatefulSet", "pumice-nats")
    peers = named(OF_THREE, "Service", servers["spec"]["serviceName"])
    assert servers["spec"]["replicas"] == write_manifests.SERVERS
    assert peers["spec"]["clusterIP"] == "None"
    assert peers["spec"]["publishNotReadyAddresses"], "none is ready before it has found another"
    text = named(OF_THREE, "ConfigMap", "pumice-nats-of-three")["data"]["nats-of-three.conf"]
    name, namespace = peers["metadata"]["name"], peers["metadata"]["namespace"]
    for number in range(write_manifests.SERVERS):
        assert f'"tls://pumice-nats-{number}.{name}.{namespace}.svc:6222"' in text
    assert f"*.{name}.{namespace}.svc" in nats_secrets.server_names(namespace)
    pod = servers["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "routes", "containerPort": 6222} in container["ports"]
    (volume,) = (v for v in pod["volumes"] if v["name"] == "certificate")
    keys = {item["key"] for item in volume["secret"]["items"]}
    assert all(f'"{write_manifests.CERTIFICATE}/{key}"' in text for key in keys)
    assert keys == {"tls.crt", "tls.key", "ca.crt"}


def test_three_nats_servers_stand_on_three_nodes_and_go_one_at_a_time() -> None:
    servers = named(OF_THREE, "StatefulSet", "pumice-nats")
    labels = servers["spec"]["selector"]
    (rule,) = servers["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert rule == {"topologyKey": "kubernetes.io/hostname", "labelSelector": labels}
    budget = named(OF_THREE, "PodDisruptionBudget", "pumice-nats")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": labels}
    assert servers["spec"]["podManagementPolicy"] == "Parallel"


def test_streams_of_three_nats_servers_have_three_copies_on_disks_that_hold_them() -> None:
    given = named(OF_THREE, "ConfigMap", "pumice-settings")["data"]
    settings = load(DeclarerSettings, service="declarer", argv=[], environ=given)
    assert settings.stream_replicas == write_manifests.SERVERS
    assert settings.state_storage == "file", "a copy in memory ends with its server"
    bound = sum(spec.max_bytes for spec in all_streams(streams(write_manifests.CLUSTER)))
    (claim,) = named(OF_THREE, "StatefulSet", "pumice-nats")["spec"]["volumeClaimTemplates"]
    volume = units(claim["spec"]["resources"]["requests"]["storage"])
    assert 2 * bound <= write_manifests.STORE_OF_THREE <= volume / 1.5
