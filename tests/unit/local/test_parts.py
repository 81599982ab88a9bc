"""Each part is looked for by itself, in order, with its version checked."""

import pytest

from pumice.local import build, parts
from pumice.local.errors import LocalError
from pumice.local.parts import PARTS


def program(path, prints, *, code=0):
    """Make an executable that prints a version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path):
    """An environment with nothing in it but places to put things."""
    (tmp_path / "bin").mkdir()
    return {
        "KUBEBUILDER_ASSETS": str(tmp_path / "assets"),
        "PATH": str(tmp_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


ETCD = PARTS["etcd"]
GOOD = f"etcd Version: {ETCD.version}"


def test_places_are_tried_in_order(tmp_path, environ):
    cached = program(parts.parts_dir("etcd", environ) / "etcd", GOOD)
    assert parts.find(ETCD, environ).path == cached
    on_path = program(tmp_path / "bin" / "etcd", GOOD)
    assert parts.find(ETCD, environ).path == on_path
    assets = program(tmp_path / "assets" / "etcd", GOOD)
    found = parts.find(ETCD, environ)
    assert (found.path, found.origin) == (assets, "KUBEBUILDER_ASSETS")


def test_another_patch_release_is_taken_and_another_minor_release_is_not(tmp_path, environ):
    major, minor, _ = ETCD.version.split(".")
    program(tmp_path / "assets" / "etcd", f"etcd Version: {major}.{int(minor) - 1}.0")
    near = program(tmp_path / "bin" / "etcd", f"etcd Version: {major}.{minor}.0")
    found = parts.find(ETCD, environ)
    assert found.path == near
    assert len(found.passed_over) == 1
    assert f"wanted {ETCD.version}" in found.passed_over[0]


@pytest.mark.parametrize(
    ("prints", "code"), [("no number", 0), (GOOD, 1)], ids=["unknown version", "it fails"]
)
def test_a_program_that_cannot_tell_its_version_is_passed_over(tmp_path, environ, prints, code):
    program(tmp_path / "bin" / "etcd", prints, code=code)
    found = parts.find(ETCD, environ)
    assert found.path is None
    assert str(tmp_path / "bin" / "etcd") in found.passed_over[0]


def test_all_missing_parts_are_named_in_one_message_with_the_remedy(environ):
    with pytest.raises(LocalError) as refused:
        parts.require(["etcd", "kwok"], environ)
    text = str(refused.value)
    assert text.count("\n") == 0
    assert all(word in text for word in ("etcd", "kwok", "pumice parts build"))


def test_the_nats_server_of_the_wheel_is_found(environ):
    found = parts.find(PARTS["nats-server"], environ)
    assert (found.origin, found.version) == ("wheel", PARTS["nats-server"].version)


def test_an_old_go_is_refused_with_what_to_do(tmp_path, environ, monkeypatch):
    monkeypatch.setattr(build, "WHEEL", "no-such-wheel")
    program(tmp_path / "bin" / "go", "go1.20.1")
    with pytest.raises(LocalError, match=r"is 1\.20\.1.*make parts"):
        build.find_go(environ)


def test_a_go_that_is_new_enough_is_found(tmp_path, environ):
    path = program(tmp_path / "bin" / "go", "go1.99.1")
    assert build.find_go(environ) == build.GoToolchain(path=path, version="1.99.1")
