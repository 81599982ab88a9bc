"""`pumice up` applies the roles of users that the manifests have."""

import yaml

from pumice.local.control_plane import ROLES
from tests.unit.deploy.test_manifests import OBJECTS
from tools import write_manifests


def test_the_roles_that_up_applies_are_those_of_the_base() -> None:
    assert write_manifests.ROLES_FILE.read_text() == write_manifests.users_roles(), (
        "run `make crds`"
    )


def test_the_roles_of_users_are_all_that_up_applies() -> None:
    """A role of a user that is added to the base has to reach local clusters."""
    roles = [o for o in OBJECTS if o["kind"] == "ClusterRole"]
    bindings = [o for o in OBJECTS if o["kind"] == "ClusterRoleBinding"]
    of_services = {
        binding["roleRef"]["name"]
        for binding in bindings
        if binding["subjects"][0]["kind"] == "ServiceAccount"
    }
    applied = list(yaml.safe_load_all(ROLES.read_text()))
    wanted = {r["metadata"]["name"] for r in roles} - of_services
    assert {o["metadata"]["name"] for o in applied if o["kind"] == "ClusterRole"} == wanted
    assert [o for o in applied if o["kind"] == "ClusterRoleBinding"] == [
        binding for binding in bindings if binding["roleRef"]["name"] not in of_services
    ]
