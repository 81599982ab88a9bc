"""What helm makes of k8s/chart is k8s/base, changed by the values (`make helm-check`)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pumice.local import parts
from pumice.local.control_plane import ControlPlane, ControlPlaneOptions
from services.admission.settings import AdmissionSettings
from services.binder.settings import BinderSettings
from services.cache.settings import CacheSettings
from services.controller.settings import ControllerSettings
from services.scheduler.settings import SchedulerSettings
from shared.contracts.permissions import permissions
from shared.runtime.settings import load
from tests.support import pages
from tests.support.goprograms import at_a_terminal
from tests.support.manifests import BASE, OVERLAYS, WORKLOADS, flags_of, key_of, named
from tools.write_chart import SERVICES

CHART = "k8s/chart"
PAGE = pages.ROOT / "docs" / "deployment.md"
SHARDS = pages.ROOT / "docs" / "shards.md"
WITH_SINGLE_PODS = {"agent_scheduler_enable": True}
WITH_WORKLOAD_GROUPS = {"workload_groups_config_map": "pumice-workload-groups"}
OF_TWO = {
    "first": {
        "other_schedulers": ["second"],
        "controller_enabled_controllers": "*",
        "scheduler_sharding_mode": "hard",
    },
    "second": {"second_scheduler": "second"},
}
NAMESPACES = {"first": "pumice-system", "second": "pumice-second"}
CONFIGURATION = "actions: allocate\ntiers:\n- plugins:\n  - name: gang"
OTHERS = {
    "basic": {
        "image_registry": "registry.example.com",
        "image_tag_version": "0.2.0",
        "nats_image_digest": "sha256:" + "1" * 64,
        "image_pull_policy": "Always",
        "image_pull_secret": "pumice-registry",
    },
    "secrets": {"nats_tls": "tls-of-ours", "nats_cache": "cache-of-ours", "state_key": "key"},
    "custom": {
        "metrics_enable": False,
        "scheduler_replicas": 1,
        "cache_replicas": 3,
        "log_level": "debug",
        "scheduler_resources": {"requests": {"cpu": 2}},
        "default_ns": {"disk": "fast"},
        "cache_ns": {"disk": "slow"},
        "default_tolerations": [{"key": "batch", "operator": "Exists"}],
        "nats_affinity": {"nodeAffinity": {}},
        "scheduler_config_override": CONFIGURATION,
        "scheduler_feature_gates": "SchedulingGatesQueueAdmission=true",
        "admission_feature_gates": "SchedulingGatesQueueAdmission=true",
        "scheduler_schedule_period": "2s",
        "scheduler_name": "batch,volcano",
        "leader_elect_enable": False,
        "enabled_admissions": "/jobs/mutate,/jobs/validate",
        "controller_kube_api_qps": 300,
        "controller_kube_api_burst": 3000000,
        "controller_worker_threads": 7,
        "controller_worker_threads_for_gc": 3,
        "controller_metrics_enable": False,
        "ignored_provisioners": "a.example.com,b.example.com",
        "scheduler_percentage_nodes_to_find": 50,
        "scheduler_sharding_name": "batch",
        "nats_storage": "50Gi",
        "nats_storage_class": "fast",
    },
}


def run_in(folder: Path, words: list[str], **environ: str) -> str:
    """Run a program of a folder, or a shell that finds it there; returns its output."""
    done = at_a_terminal(words, programs=folder, cwd=pages.ROOT, **environ)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def objects(text: str) -> list[dict]:
    """Return the objects of a stream in an order of their own."""
    found = [o for o in yaml.safe_load_all(text) if o]
    return sorted(found, key=key_of)


def rendered(
    folder: Path, values: dict, tmp_path: Path, *flags: str, namespace: str = "pumice-system"
) -> list[dict]:
    """Return what `helm template` makes of values."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    words = ["helm", "template", "pumice", CHART, "-n", namespace, "-f", str(file), *flags]
    return objects(run_in(folder, words))


def sets(*settings: str) -> list[str]:
    """Return helm's flags for settings of values."""
    return [word for each in settings for word in ("--set", each)]


def refused(folder: Path, *settings: str) -> str:
    """Return what helm says to values that it does not take."""
    words = ["helm", "template", "pumice", CHART, *sets(*settings)]
    done = at_a_terminal(words, programs=folder, cwd=pages.ROOT)
    assert done.returncode != 0, settings
    return done.stderr


def pod_spec(found: list[dict], name: str) -> dict:
    """Return the spec of the pods of the one workload of that name."""
    (workload,) = (
        o for o in found if o["kind"] in WORKLOADS and o["metadata"]["name"] == f"pumice-{name}"
    )
    return workload["spec"]["template"]["spec"]


def settings(cls: type[Any], found: list[dict], service: str) -> Any:
    """Return what the service of a Deployment makes of its flags."""
    environ = named(found, "ConfigMap", "pumice-settings")["data"]
    name = service.removeprefix("agent-")
    return load(cls, service=name, argv=flags_of(found, service), environ=environ)


def test_helm_finds_no_fault_in_the_chart(charting: Path) -> None:
    said = run_in(charting, ["helm", "lint", "--strict", CHART])
    assert "0 chart(s) failed" in said


def test_without_values_the_chart_is_the_base(charting: Path, tmp_path: Path) -> None:
    base = objects(run_in(charting, ["kubectl", "kustomize", str(BASE)]))
    apart = [o for o in base if o["kind"] != "Namespace"]
    assert len(apart) == len(base) - 1
    assert rendered(charting, {}, tmp_path, "--include-crds") == apart


@pytest.mark.parametrize(
    ("overlay", "custom"),
    [("agent-scheduler", WITH_SINGLE_PODS), ("workload-groups", WITH_WORKLOAD_GROUPS)],
)
def test_with_the_value_of_an_overlay_the_chart_is_that_overlay(
    charting: Path, tmp_path: Path, overlay: str, custom: dict
) -> None:
    folder = str(OVERLAYS / overlay)
    wanted = [
        o for o in objects(run_in(charting, ["kubectl", "kustomize", folder]))
        if o["kind"] != "Namespace"
    ]  # fmt: skip
    assert rendered(charting, {"custom": custom}, tmp_path, "--include-crds") == wanted


def test_the_scheduler_of_single_pods_goes_by_values_of_its_own(
    charting: Path, tmp_path: Path
) -> None:
    custom = WITH_SINGLE_PODS | {
        "scheduler_name": "batch,volcano",
        "scheduler_sharding_mode": "soft",
        "agent_scheduler_sharding_mode": "hard",
        "agent_scheduler_replicas": 1,
        "agent_scheduler_ns": {"disk": "fast"},
        "controller_enabled_controllers": "*",
    }
    found = rendered(charting, {"custom": custom}, tmp_path)
    assert named(found, "Deployment", "pumice-agent-scheduler")["spec"]["replicas"] == 1
    names = {o["metadata"]["name"] for o in found if o["kind"] == "PodDisruptionBudget"}
    assert "pumice-scheduler" in names
    assert "pumice-agent-scheduler" not in names
    assert pod_spec(found, "agent-scheduler")["nodeSelector"] == {"disk": "fast"}
    assert "nodeSelector" not in pod_spec(found, "scheduler")
    single = settings(SchedulerSettings, found, "agent-scheduler")
    groups = settings(SchedulerSettings, found, "scheduler")
    assert (single.scheduler_name, groups.scheduler_name) == (
        ("agent-scheduler",), ("batch", "volcano"),
    )  # fmt: skip
    modes = (single.scheduler_sharding_mode, groups.scheduler_sharding_mode)
    assert modes == ("hard", "soft")
    served = settings(CacheSettings, found, "cache").scheduler_name
    assert served == ("batch", "volcano", "agent-scheduler")
    assert settings(BinderSettings, found, "binder").scheduler_name == served
    assert settings(ControllerSettings, found, "controller").controllers == ("*",)


@pytest.mark.parametrize("which", OF_TWO)
def test_of_two_schedulers_the_chart_is_their_overlays(
    charting: Path, tmp_path: Path, which: str
) -> None:
    folder = str(OVERLAYS / f"{which}-of-two")
    wanted = [
        o for o in objects(run_in(charting, ["kubectl", "kustomize", folder]))
        if o["kind"] != "Namespace"
    ]  # fmt: skip
    values, namespace = {"custom": OF_TWO[which]}, NAMESPACES[which]
    assert rendered(charting, values, tmp_path, "--include-crds", namespace=namespace) == wanted


def test_any_name_of_a_second_scheduler_is_in_all_that_has_it(
    charting: Path, tmp_path: Path
) -> None:
    values = {"custom": {"second_scheduler": "batch"}}
    found = rendered(charting, values, tmp_path, namespace="elsewhere")
    cache = settings(CacheSettings, found, "cache")
    own = (cache.leader_elect_resource_name, cache.leader_elect_controller_resource_name)
    assert own == ("batch", "batch-controller")
    role = named(found, "ClusterRole", "pumice-cache-batch")
    (leases,) = (r["resourceNames"] for r in role["rules"] if "resourceNames" in r)
    policy = named(found, "ValidatingAdmissionPolicy", "pumice-cache-leases-batch")["spec"]
    assert leases == list(own)
    assert str(leases) in policy["validations"][0]["expression"]
    assert "elsewhere:pumice-cache" in policy["matchConditions"][0]["expression"]
    scheduler = settings(SchedulerSettings, found, "scheduler")
    assert (scheduler.scheduler_name, scheduler.scheduler_sharding_name) == (("batch",), "batch")
    assert settings(BinderSettings, found, "binder").scheduler_name == ("batch",)


def test_the_controllers_may_hold_the_leases_of_the_schedulers_that_they_serve(
    charting: Path, tmp_path: Path
) -> None:
    values = {"custom": {"other_schedulers": ["batch", "night"], "scheduler_name": "day"}}
    found = rendered(charting, values, tmp_path)
    role = named(found, "ClusterRole", "pumice-controller")
    (leases,) = (r["resourceNames"] for r in role["rules"] if r["resources"] == ["leases"])
    assert leases == ["volcano", "batch", "night"]
    for cls, service in (
        (CacheSettings, "cache"), (ControllerSettings, "controller"),
        (AdmissionSettings, "admission"),
    ):  # fmt: skip
        assert settings(cls, found, service).scheduler_name == ("day", "batch", "night")
    for own, service in ((BinderSettings, "binder"), (SchedulerSettings, "scheduler")):
        assert settings(own, found, service).scheduler_name == ("day",)


def test_texts_of_values_are_the_configmaps_that_the_controllers_read(
    charting: Path, tmp_path: Path
) -> None:
    shards = (pages.ROOT / "examples" / "shards.yaml").read_text()
    (given,) = yaml.safe_load(shards)["data"].values()
    custom = {"sharding_configmap_data": given, "controller_config_override": "networkTopology: {}"}
    found = rendered(charting, {"custom": custom}, tmp_path)
    read = settings(ControllerSettings, found, "controller")
    data = named(found, "ConfigMap", read.sharding_configmap)["data"]
    assert yaml.safe_load(data["sharding.yaml"]) == yaml.safe_load(given)
    data = named(found, "ConfigMap", read.topology_config_map)["data"]
    assert data["volcano-controller.conf"] == "networkTopology: {}\n"
    off = rendered(charting, {"custom": {**custom, "sharding_configmap_enable": False}}, tmp_path)
    assert read.sharding_configmap not in {o["metadata"]["name"] for o in off}


def test_a_value_that_the_chart_does_not_have_is_refused_by_its_name(charting: Path) -> None:
    said = refused(
        charting, "custom.colocation_enable=true", "custom.scheduler_log_level=5",
        "custom.scheduler_enable=false", "basic.admission_port=8444",
        "service.ipFamilyPolicy=SingleStack", "agent.image=x",
    )  # fmt: skip
    for name in (
        "custom.colocation_enable,", "custom.scheduler_log_level (use log_level)",
        "custom.scheduler_enable (true only)", "basic.admission_port", "service.ipFamilyPolicy",
        "agent,",
    ):  # fmt: skip
        assert name in said
    said = refused(charting, "custom.second_scheduler=s", "custom.agent_scheduler_enable=true")
    assert "custom.second_scheduler excludes" in said


def test_a_value_of_volcanos_chart_that_asks_for_nothing_else_is_taken(charting: Path) -> None:
    given = (
        "custom.colocation_enable=false", "custom.scheduler_enable=true", "global.any=1",
        "custom.scheduler_plugins_dir=", "service.ipFamilyPolicy=", "custom.default_sc=null",
        "custom.agent_scheduler_worker_count=1",
        "custom.hypernode_controller_mode=controller-manager",
    )  # fmt: skip
    text = run_in(charting, ["helm", "template", "pumice", CHART, *sets(*given)])
    assert objects(text) == objects(run_in(charting, ["helm", "template", "pumice", CHART]))


def test_another_namespace_is_everywhere(charting: Path) -> None:
    text = run_in(charting, ["helm", "template", "pumice", CHART, "-n", "batch"])
    for o in objects(text):
        of_api_server = {"kube-system"} if o["kind"] in {"Role", "RoleBinding"} else set()
        assert o["metadata"].get("namespace", "batch") in {"batch", *of_api_server}
        assert "pumice-system" not in yaml.safe_dump(o), o["metadata"]["name"]


def test_images_places_and_secrets_are_those_of_the_values(charting: Path, tmp_path: Path) -> None:
    found = rendered(charting, OTHERS, tmp_path)
    for name in (*SERVICES, "nats"):
        spec = pod_spec(found, name)
        assert spec["imagePullSecrets"] == [{"name": "pumice-registry"}]
        assert spec["nodeSelector"] == {"disk": "slow" if name == "cache" else "fast"}
        assert spec["tolerations"] == [{"key": "batch", "operator": "Exists"}]
        assert ("affinity" in spec) == (name == "nats")
        (container,) = spec["containers"]
        assert container["imagePullPolicy"] == "Always"
        of_nats = "docker.io/library/nats@sha256:" + "1" * 64
        wanted = of_nats if name == "nats" else "registry.example.com/pumice:0.2.0"
        assert container["image"] == wanted
    text = yaml.safe_dump_all(found)
    assert "pumice-nats-tls" not in text
    assert "pumice-nats-cache" not in text
    assert "pumice-state-key" not in text
    assert text.count("key: password\n") == len(permissions("main"))
    assert {"name": "tls-of-ours"}.items() <= (
        pod_spec(found, "cache")["volumes"][1]["projected"]["sources"][1]["secret"].items()
    )


def test_sizes_and_switches_are_those_of_the_values(charting: Path, tmp_path: Path) -> None:
    found = rendered(charting, OTHERS, tmp_path)
    names = {(o["kind"], o["metadata"]["name"]) for o in found}
    assert ("Service", "pumice-metrics") not in names
    assert ("NetworkPolicy", "pumice-metrics-from-cluster") not in names
    assert ("PodDisruptionBudget", "pumice-scheduler") not in names, "it would hold up a drain"
    assert ("PodDisruptionBudget", "pumice-cache") in names
    replicas = {o["metadata"]["name"]: o["spec"]["replicas"] for o in found if "Dep" in o["kind"]}
    assert (replicas["pumice-scheduler"], replicas["pumice-cache"]) == (1, 3)
    resources = pod_spec(found, "scheduler")["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": 2, "memory": "256Mi"}
    (claim,) = named(found, "StatefulSet", "pumice-nats")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    configuration = named(found, "ConfigMap", "pumice-scheduler-configmap")["data"]
    assert configuration["volcano-scheduler.conf"].strip() == CONFIGURATION
    without = rendered(charting, {"custom": {"admission_enable": False}}, tmp_path)
    assert not [o for o in without if "admission" in o["metadata"]["name"]]


def test_the_services_take_the_flags_that_values_give(charting: Path, tmp_path: Path) -> None:
    found = rendered(charting, OTHERS, tmp_path)
    scheduler = settings(SchedulerSettings, found, "scheduler")
    assert scheduler.feature_gates == "SchedulingGatesQueueAdmission=true"
    assert float(scheduler.schedule_period) == 2.0
    assert scheduler.log_level == "debug"
    assert settings(CacheSettings, found, "cache").leader_elect is False
    admission = settings(AdmissionSettings, found, "admission")
    assert admission.enabled_admission == ("/jobs/mutate", "/jobs/validate")
    controller = settings(ControllerSettings, found, "controller")
    assert (controller.kube_api_qps, controller.kube_api_burst) == (300.0, 3000000)
    assert (controller.worker_threads, controller.worker_threads_for_gc) == (7, 3)
    assert not controller.enable_metrics
    assert scheduler.ignored_provisioners == ("a.example.com", "b.example.com")
    assert scheduler.percentage_nodes_to_find == 50
    assert scheduler.scheduler_sharding_name == "batch"
    for taken in (scheduler, admission, controller):
        assert taken.scheduler_name == ("batch", "volcano")


@pytest.mark.timeout(300)
async def test_helm_installs_changes_and_uninstalls_by_the_lines_of_the_page(
    charting: Path, tmp_path: Path
) -> None:
    scripts = [b.text for b in pages.blocks(PAGE) if b.heading == "Helm"]
    assert len(scripts) == 3
    async with ControlPlane(
        ControlPlaneOptions(directory=tmp_path / "plane"), parts.require()
    ) as plane:

        def run(script: str) -> str:
            words = ["bash", "-e", "-o", "pipefail", "-c", script]
            return run_in(charting, words, KUBECONFIG=str(plane.kubeconfig), HOME=str(tmp_path))

        install, change, uninstall = scripts
        run(install)
        names = run("kubectl get deployment,statefulset -n pumice-system -o name").split()
        assert len(names) == len(SERVICES) + 1
        run(change)
        where = "-o jsonpath={.spec.replicas}"
        assert run(f"kubectl -n pumice-system get deployment pumice-scheduler {where}") == "3"
        run(uninstall)
        assert not run("kubectl get deployment,statefulset,service -n pumice-system -o name")
        assert not run("kubectl get clusterrole -o name | grep pumice || true")
        run("kubectl get queues.scheduling.volcano.sh")


@pytest.mark.timeout(300)
async def test_helm_installs_two_schedulers_beside_each_other_by_the_lines_of_the_page(
    charting: Path, tmp_path: Path
) -> None:
    (script,) = [b.text for b in pages.blocks(SHARDS) if b.heading == "Two schedulers"]
    async with ControlPlane(
        ControlPlaneOptions(directory=tmp_path / "plane"), parts.require()
    ) as plane:

        def run(script: str) -> str:
            words = ["bash", "-e", "-o", "pipefail", "-c", script]
            return run_in(charting, words, KUBECONFIG=str(plane.kubeconfig), HOME=str(tmp_path))

        for namespace in NAMESPACES.values():
            run(f"kubectl create namespace {namespace}")
        run(script)
        found = run("kubectl get deployment -A -o name").split()
        assert len(found) == len(SERVICES) + len(SERVICES) - 3
        roles = run("kubectl get clusterrole -o name")
        assert "pumice-cache-second\n" in roles
        run("helm uninstall second --namespace pumice-second")
        left = run("kubectl get clusterrole,validatingadmissionpolicy -o name")
        assert "second" not in left
        assert "pumice-cache\n" in left
        assert "pumice-cache-leases\n" in left
