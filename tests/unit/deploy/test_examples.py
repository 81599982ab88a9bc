"""Every example is what it says: objects that our types read, a configuration that is accepted."""

from pathlib import Path

import msgspec
import pytest
import yaml

from pumice.local import fleet
from services.controller.hypernode import config as topology
from services.controller.settings import ControllerSettings
from services.controller.sharding import config as sharding
from services.scheduler.config import parse
from services.scheduler.policy.catalog import ACTIONS, PLUGINS
from shared.api import visibility, whatifs
from shared.api.kinds import JOB, KINDS, Kind, decode
from tests.support.manifests import BASE, ROOT, build, named
from tools.frameworks_check.workloads import WORKLOADS, Workload, at

EXAMPLES = ROOT / "examples"
LOCAL = sorted((EXAMPLES / "local").glob("*.yaml"))
FRAMEWORKS = sorted((EXAMPLES / "frameworks").glob("*.yaml"))
FILES = sorted({*EXAMPLES.rglob("*.yaml")} - {*LOCAL, *FRAMEWORKS})
WHAT_IF = Kind(
    kind="WhatIf", group=visibility.GROUP, version=visibility.VERSION, plural="whatifs",
    type=whatifs.WhatIf,
)  # fmt: skip
BY_KIND = {(kind.api_version, kind.kind): kind for kind in (*KINDS.values(), WHAT_IF)}


def objects_of(path: Path) -> list[dict]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(EXAMPLES)))
def test_an_example_holds_objects_that_our_types_read(path: Path) -> None:
    for found in objects_of(path):
        kind = BY_KIND.get((found["apiVersion"], found["kind"]))
        if kind is None:
            assert found["kind"] in {"Deployment", "ConfigMap"}
            continue
        view = decode(kind, msgspec.json.encode(found))
        assert view.metadata.name == found["metadata"]["name"]
        if kind is JOB:
            total = sum(task.replicas for task in view.spec.tasks)
            assert 0 < view.spec.min_available <= total
            assert view.spec.scheduler_name == "volcano"


def test_each_example_of_a_framework_is_checked_with_its_operator() -> None:
    checked = {workload.example for workload in WORKLOADS}
    assert {path.name for path in FRAMEWORKS} - {"queue.yaml"} == checked


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.title)
def test_an_example_of_a_framework_is_of_the_kind_that_is_checked(workload: Workload) -> None:
    found = objects_of(EXAMPLES / "frameworks" / workload.example)[-1]
    assert (found["apiVersion"], found["kind"]) == (workload.api, workload.kind)
    assert isinstance(at(found, workload.count), int)


def test_the_example_of_a_network_is_a_configuration_h02() -> None:
    (found,) = objects_of(EXAMPLES / "hypernodes.yaml")
    assert found["metadata"]["name"] == ControllerSettings().topology_config_map
    discovery = topology.parse(found["data"][topology.KEY], topology.DiscoveryBounds())
    assert discovery.types == {"roce": ("example.com/spine", "example.com/leaf")}


def test_the_example_of_shards_is_a_configuration_s02() -> None:
    (found,) = objects_of(EXAMPLES / "shards.yaml")
    assert found["metadata"]["name"] == ControllerSettings().sharding_configmap
    config = sharding.parse(found["data"][sharding.KEY], sharding.Config())
    assert [shard.name for shard in config.shards] == ["volcano", "agent-scheduler"]


def test_the_example_of_fake_machines_can_be_started_with() -> None:
    (path,) = LOCAL
    found = fleet.read(path)
    assert found.count == 12
    assert {hyper.tier for hyper in found.hyper_nodes} == {1, 2}


def test_every_example_is_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in (*FILES, *LOCAL):
        relative = path.relative_to(EXAMPLES)
        assert f"`{relative}`" in listed or f"`{relative.parts[0]}/`" in listed, relative


def test_the_configuration_of_the_examples_is_that_of_the_deployment() -> None:
    example = (EXAMPLES / "scheduler" / "volcano-scheduler.conf").read_text()
    deployed = named(build(BASE), "ConfigMap", "pumice-scheduler-configmap")["data"]
    assert yaml.safe_load(example) == yaml.safe_load(deployed["volcano-scheduler.conf"])
    config = parse(example, actions=ACTIONS.keys(), plugins=PLUGINS.keys())
    assert config.actions == ("enqueue", "allocate", "backfill")
    assert not config.warnings
