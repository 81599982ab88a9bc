"""The table of controllers: one folder and one row each, with the rights that k8s/ grants."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from services.controller.adapters.informers import Informers
from services.controller.adapters.reconciler import Reconciler
from services.controller.controllers import CONTROLLERS, SHARED_RIGHTS, Controller, ControllerRight
from shared.api import kinds
from tests.support.manifests import BASE, ROOT
from tests.unit.controller.reconcilers import Died, Process, Stage

FOLDER = ROOT / "services" / "controller"
EXAMPLE = re.compile(r"^### A controller$.*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Grant = tuple[str, str, str]
"""API group, resource and verb."""


def granted(rules: Iterable[dict[str, Any]]) -> set[Grant]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def wanted(rights: Iterable[ControllerRight]) -> set[Grant]:
    return {
        (right.kind.group, "/".join(filter(None, (right.kind.plural, right.subresource))), verb)
        for right in rights
        for verb in right.verbs
    }


def test_the_cluster_role_grants_what_the_table_says_and_no_more() -> None:
    text = (BASE / "rbac" / "controller.yaml").read_text()
    (role,) = (o for o in yaml.safe_load_all(text) if o["kind"] == "ClusterRole")
    rights = (*SHARED_RIGHTS, *(right for row in CONTROLLERS for right in row.rights))
    assert granted(role["rules"]) == wanted(rights)


def test_each_folder_with_a_reconciler_has_one_row() -> None:
    folders = sorted(path.parent.name for path in FOLDER.glob("*/reconciler.py"))
    of_rows = sorted(row.reconciler.__module__.split(".")[2] for row in CONTROLLERS)
    assert of_rows == [name for name in folders if name != "adapters"]


def test_each_store_is_watched_and_each_watched_kind_has_a_store() -> None:
    watched = {kind.token for row in CONTROLLERS for kind in row.watches}
    assert watched == set(Informers(scheduler_names=["volcano"]).by_kind)


@pytest.mark.parametrize("field", ["name", "queue", "quarantined_as"])
def test_rows_share_no_name_and_no_queue(field: str) -> None:
    values = [getattr(row, field) for row in CONTROLLERS]
    assert len(set(values)) == len(values)


def example() -> type[Reconciler]:
    """Return the controller that CONTRIBUTING.md shows."""
    found = EXAMPLE.search((ROOT / "CONTRIBUTING.md").read_text())
    assert found is not None, "the recipe of a controller has an example"
    names: dict[str, Any] = {}
    exec(found[1], names)
    made: type[Reconciler] = names["GreetingReconciler"]
    return made


def row() -> Controller:
    return Controller(
        name="greeting-controller",
        reconciler=example(),
        queue="greetings",
        quarantined_as=(kinds.JOBTEMPLATE.token, "greet"),
        watches=(kinds.JOBTEMPLATE,),
        rights=(ControllerRight(kinds.JOBTEMPLATE, ("patch",)),),
    )


async def test_the_controller_of_the_recipe_reconciles_each_object_once() -> None:
    stage = Stage()
    process = Process(stage)
    process.start(row())
    async with process.running("greetings"):
        for name in ("a", "b"):
            stage.template(name)
            process.relist()
            await stage.clock.advance(1.0)
    labels = [item["metadata"]["labels"] for item in stage.items(kinds.JOBTEMPLATE)]
    assert labels == [{"greeting": "hello"}] * 2
    assert stage.writes["PATCH jobtemplates"] == 2


async def test_the_controller_of_the_recipe_outlives_refusals_and_deaths() -> None:
    stage = Stage()
    stage.template("a")
    dying = Process(stage, dies_at=1)
    dying.start(row())
    dying.relist()
    with pytest.raises(Died):
        await dying.look("greetings")
    other = Process(stage)
    other.start(row())
    other.refused = {"PATCH jobtemplates/b"}
    stage.template("b")
    async with other.running("greetings"):
        other.relist()
        await stage.clock.advance(5.0)
        assert other.denied > 1, "it is asked for again"
        other.refused.clear()
        await stage.clock.advance(20.0)
    assert stage.writes["PATCH jobtemplates"] == 2, "a has its label of the first process"
