"""Variables that Kubernetes makes for Services are no settings, and settings stay settings."""

import importlib

import pytest

from services.admission.settings import AdmissionSettings
from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.settings import load, service_links
from tests.support.manifests import BASE, ROOT, build

SERVICES = sorted(path.parent.name for path in (ROOT / "services").glob("*/__main__.py"))
MADE = [found for found in build(BASE) if found["kind"] == "Service"]
ADDRESS = "10.96.0.17"


def links_of(name: str, ports: list[tuple[str, int, str]]) -> dict[str, str]:
    """Return what a kubelet puts into the pods beside a Service, as Kubernetes documents it."""
    stem = name.upper().replace("-", "_")
    _, first, _ = ports[0]
    url = f"{ports[0][2].lower()}://{ADDRESS}:{first}"
    made = {f"{stem}_SERVICE_HOST": ADDRESS, f"{stem}_SERVICE_PORT": str(first)}
    made[f"{stem}_PORT"] = url
    for port_name, port, protocol in ports:
        if port_name:
            made[f"{stem}_SERVICE_PORT_{port_name.upper().replace('-', '_')}"] = str(port)
        one = f"{stem}_PORT_{port}_{protocol}"
        made[one] = f"{protocol.lower()}://{ADDRESS}:{port}"
        made |= {f"{one}_PROTO": protocol.lower(), f"{one}_PORT": str(port)}
        made[f"{one}_ADDR"] = ADDRESS
    return made


def links_in_the_manifests() -> dict[str, str]:
    made: dict[str, str] = {}
    for service in MADE:
        ports = [
            (port.get("name", ""), port["port"], port.get("protocol", "TCP"))
            for port in service["spec"]["ports"]
        ]
        made |= links_of(service["metadata"]["name"], ports)
    return made


def settings_of(service: str) -> type[CommonSettings]:
    module = importlib.import_module(f"services.{service}.settings")
    (found,) = [
        value
        for name, value in vars(module).items()
        if name == f"{service.capitalize()}Settings" and issubclass(value, CommonSettings)
    ]
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_loads_the_same_settings_beside_the_links_of_every_service(service: str) -> None:
    made = links_in_the_manifests()
    assert "PUMICE_ADMISSION_PORT" in made, "a Service of ours is named like one of our settings"
    cls = settings_of(service)
    assert load(cls, service=service, argv=(), environ=made) == load(
        cls, service=service, argv=(), environ={}
    )
    assert service_links(made) == tuple(sorted(made))


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_named_like_another_setting_changes_none(service: str) -> None:
    cls = settings_of(service)
    stems = [f"pumice-{service}", "pumice", f"pumice-{service}-webhook", f"pumice-{service}-nats"]
    made: dict[str, str] = {}
    for stem in stems:
        made |= links_of(stem, [("", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("s", 9, "SCTP")])
    assert load(cls, service=service, argv=(), environ=made) == load(
        cls, service=service, argv=(), environ={}
    )


def test_a_port_that_a_person_sets_stays_a_setting() -> None:
    environ = {"PUMICE_ADMISSION_PORT": "9443", "PUMICE_ADMISSION_WEBHOOK_SERVICE_PORT": "444"}
    assert service_links(environ) == ()
    settings = load(settings_of("admission"), service="admission", argv=(), environ=environ)
    assert isinstance(settings, AdmissionSettings)
    assert (settings.port, settings.webhook_service_port) == (9443, 444)


def test_a_slip_in_a_variable_is_refused_still() -> None:
    with pytest.raises(Rejected, match="PUMICE_ADMISSION_PROT"):
        load(
            settings_of("admission"),
            service="admission",
            argv=(),
            environ={"PUMICE_ADMISSION_PROT": "9443", **links_in_the_manifests()},
        )
