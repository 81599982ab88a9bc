"""The manifests of visibility: they lead to where it listens, and give users what it serves."""

from services.visibility.adapters import registration
from services.visibility.api.resources import RESOURCES
from services.visibility.settings import VisibilitySettings
from shared.api import visibility
from tests.support.manifests import BASE, build, named

OBJECTS = build(BASE)


def test_visibility_listens_where_its_service_and_the_api_service_lead() -> None:
    (container,) = named(OBJECTS, "Deployment", "pumice-visibility")["spec"]["template"]["spec"][
        "containers"
    ]
    service = named(OBJECTS, "Service", "pumice-visibility")
    api_service = named(OBJECTS, "APIService", registration.NAME)
    defaults = VisibilitySettings()
    (port,) = service["spec"]["ports"]
    place = {key: service["metadata"][key] for key in ("name", "namespace")}
    assert api_service["spec"]["service"] == {**place, "port": port["port"]}
    assert f"--service-name={place['name']}" in container["args"]
    assert f"--service-namespace={place['namespace']}" in container["args"]
    assert port["port"] == defaults.service_port
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports[port["targetPort"]] == defaults.port


def test_the_api_service_is_trusted_by_no_authority_but_our_own() -> None:
    spec = named(OBJECTS, "APIService", registration.NAME)["spec"]
    assert "insecureSkipTLSVerify" not in spec
    assert "caBundle" not in spec, "visibility adds it, and an apply must not take it away"
    assert (spec["group"], spec["version"]) == (visibility.GROUP, visibility.VERSION)


def test_each_resource_of_visibility_is_in_a_role_for_users() -> None:
    granted = {
        (resource, verb)
        for name in ("visibility-viewer", "visibility-editor", "usage-own")
        for rule in named(OBJECTS, "ClusterRole", f"pumice-{name}")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    served = {(resource.plural, verb) for resource in RESOURCES for verb in resource.verbs}
    assert granted == served
