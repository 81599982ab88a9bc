"""Certificates, kubeconfigs, NATS configuration and state: private, whole, and kept."""

import json
import ssl
import subprocess
import sys

import pytest
import yaml

from pumice.local import admin, authority, parts, state
from pumice.local.control_plane import ControlPlaneOptions
from pumice.local.errors import LocalError
from pumice.local.kubeconfig import KubeconfigEntry, write_kubeconfig
from pumice.local.nats import NatsServer
from pumice.local.stack import HolderConfig, StackOptions, read_holder_config, write_holder_config
from pumice.local.state import State
from shared.contracts.permissions import permissions


def test_certificates_are_made_once_and_only_their_owner_reads_them(tmp_path):
    first = authority.ensure_pki(tmp_path / "pki")
    before = {file.name: file.read_bytes() for file in (tmp_path / "pki").iterdir()}
    assert authority.ensure_pki(tmp_path / "pki") == first
    assert {file.name: file.read_bytes() for file in (tmp_path / "pki").iterdir()} == before
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "pki").iterdir())


def test_certificates_are_made_again_when_making_them_was_cut_off(tmp_path):
    made = authority.ensure_pki(tmp_path / "pki")
    made.service_account_key.unlink()
    again = authority.ensure_pki(tmp_path / "pki")
    assert again.service_account_key.exists()
    context = ssl.create_default_context(cafile=str(again.ca))
    context.load_cert_chain(again.admin.cert, again.admin.key)  # refused if they do not match


def test_a_kubeconfig_holds_everything_inline(tmp_path):
    made = authority.ensure_pki(tmp_path / "pki")
    entry = KubeconfigEntry(server="https://127.0.0.1:1", ca=made.ca, token="secret")
    write_kubeconfig(tmp_path / "kubeconfig", entry)
    document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    assert document["current-context"] == "pumice"
    assert document["users"][0]["user"] == {"token": "secret"}
    assert "certificate-authority-data" in document["clusters"][0]["cluster"]
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600


def nats(tmp_path):
    return NatsServer(binary=parts.nats_server_binary(), directory=tmp_path / "nats")


async def test_each_service_has_a_nats_user_with_exactly_its_subjects(tmp_path):
    server = nats(tmp_path)
    try:
        await server.start()
    finally:
        await server.stop()
    config = tmp_path / "nats" / "nats-server.conf"
    assert config.stat().st_mode & 0o077 == 0
    accounts = json.loads(config.read_text())["accounts"].values()
    users = {u["user"]: u for account in accounts for u in account.get("users", ())}
    for name, allowed in permissions("local").items():
        if name != "events":  # what its clients try and may not is answered, not refused
            assert users[name]["permissions"]["publish"] == list(allowed.publish)
        assert users[name]["permissions"]["subscribe"] == list(allowed.subscribe)
    assert set(users) == {"admin", *permissions("local")}


def test_nats_passwords_are_random_and_kept_with_the_data(tmp_path):
    first, again, other = nats(tmp_path), nats(tmp_path), nats(tmp_path / "other")
    assert first.passwords == again.passwords
    assert len(set(first.passwords.values()) | set(other.passwords.values())) == 2 * len(
        first.passwords
    )


def test_an_order_for_the_holder_comes_back_as_it_was(tmp_path):
    wanted = HolderConfig(
        stack=StackOptions(
            plane=ControlPlaneOptions(directory=tmp_path, port=1), flags={"cache": ("--x=1",)}
        ),
        binaries={"etcd": tmp_path / "etcd"},
    )
    write_holder_config(tmp_path, wanted)
    assert read_holder_config(tmp_path) == wanted


def test_a_state_is_read_as_written_and_none_when_nothing_ran(tmp_path):
    assert state.read(tmp_path) is None
    state.write(tmp_path, State(phase="ready", pid=7))
    assert state.read(tmp_path) == State(phase="ready", pid=7)
    state.forget(tmp_path)
    assert state.read(tmp_path) is None


def test_a_broken_state_is_named(tmp_path):
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(LocalError, match=r"state\.json is not readable"):
        state.read(tmp_path)


def test_a_directory_is_held_by_one(tmp_path):
    assert not state.is_locked(tmp_path / "cluster")
    with state.locked(tmp_path / "cluster"):
        assert state.is_locked(tmp_path / "cluster")
        with pytest.raises(LocalError, match="running already"), state.locked(tmp_path / "cluster"):
            pytest.fail("held twice")
    assert not state.is_locked(tmp_path / "cluster")


def test_a_directory_is_held_until_the_process_of_its_holder_has_ended(tmp_path):
    code = (
        "import sys; from pathlib import Path; from pumice.local import state;"
        "state.hold(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    cluster = tmp_path / "cluster"
    argv = (sys.executable, "-c", code, str(cluster))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert state.is_locked(cluster)
        with pytest.raises(LocalError, match="running already"):
            state.hold(cluster)
    assert not state.is_locked(cluster)


def test_crds_are_read_from_every_document_of_a_folder(tmp_path):
    crd = "kind: CustomResourceDefinition\nmetadata: {name: runs.example.com}\n"
    (tmp_path / "all.yaml").write_text(f"kind: Namespace\n---\n{crd}---\n")
    (tmp_path / "kustomization.yaml").write_text("resources: [all.yaml]\n")

    assert [crd["metadata"]["name"] for crd in admin.crd_manifests(tmp_path)] == [
        "runs.example.com"
    ]
