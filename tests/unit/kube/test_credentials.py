"""Credentials from every kind of kubeconfig, and their rotation while we run."""

import base64
import json as stdjson
import ssl
import tempfile
from pathlib import Path

import pytest
import yaml

from shared.api.kinds import POD
from shared.kube.config import connect
from shared.kube.errors import Unreachable
from shared.kube.sources import InClusterSource, KubeconfigSource, find_source
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Rejected
from tests.support.certificates import Authority
from tests.support.scripted_api import ScriptedApi, json


def tokens(api: ScriptedApi) -> list[str | None]:
    return [seen.headers.get("Authorization") for seen in api.seen]


async def ask(api: ScriptedApi, kubeconfig: Path, times: int = 1) -> None:
    async with await connect(str(kubeconfig), user_agent="t") as kube:
        for _ in range(times):
            await kube.get(POD, "ns", "p")


async def test_a_token_file_is_read_again_when_it_is_replaced(
    api: ScriptedApi, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first\n")
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(tokenFile="token", token="stale"))
    api.then(*[json({})] * 3)
    async with await connect(str(file), user_agent="t") as kube:
        await kube.get(POD, "ns", "p")
        (tmp_path / "new").write_text("second\n")
        (tmp_path / "new").rename(tmp_path / "token")
        await kube.get(POD, "ns", "p")
        (tmp_path / "token").unlink()  # being replaced, not gone
        await kube.get(POD, "ns", "p")
    assert tokens(api) == ["Bearer first", "Bearer second", "Bearer second"]


async def test_a_user_without_credentials_is_anonymous(api: ScriptedApi, tmp_path: Path) -> None:
    config = yaml.safe_load(api.kubeconfig(token="a"))
    del config["users"][0]["user"]
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    api.then(json({}))
    await ask(api, file)
    assert tokens(api) == [None]


async def test_basic_authentication_still_works(api: ScriptedApi, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(username="u", password="p"))
    api.then(json({}))
    await ask(api, file)
    assert tokens(api) == ["Basic " + base64.b64encode(b"u:p").decode()]


@pytest.mark.parametrize("inline", [True, False], ids=["inline data", "files"])
async def test_client_certificates_are_presented_and_the_server_is_checked(
    tmp_path: Path, authority: Authority, inline: bool
) -> None:
    client = authority.issue("someone")

    def named(name: str, path: Path) -> dict[str, str]:
        data = base64.b64encode(path.read_bytes()).decode()
        return {f"{name}-data": data} if inline else {name: str(path)}

    async with ScriptedApi().serving(authority.server_context()) as api:
        api.cluster = named("certificate-authority", authority.ca_file)
        file = tmp_path / "kubeconfig"
        user = named("client-certificate", client.cert) | named("client-key", client.key)
        file.write_text(api.kubeconfig(**user))
        api.then(json({}))
        await ask(api, file)
        assert [seen.client for seen in api.seen] == ["someone"]


async def test_no_key_is_left_in_temporary_files(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    client = authority.issue("someone")
    async with ScriptedApi().serving(authority.server_context()) as api:
        api.cluster = {"certificate-authority": str(authority.ca_file)}
        file = tmp_path / "kubeconfig"
        encoded = {
            "client-certificate-data": base64.b64encode(client.cert.read_bytes()).decode(),
            "client-key-data": base64.b64encode(client.key.read_bytes()).decode(),
        }
        file.write_text(api.kubeconfig(**encoded))
        async with await connect(str(file), user_agent="t"):
            assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["kept", "closed"])
async def test_a_new_certificate_is_presented_by_the_next_request(
    tmp_path: Path, authority: Authority, headers: dict[str, str]
) -> None:
    client = authority.issue("before")
    async with ScriptedApi().serving(authority.server_context()) as api:
        api.cluster = {"certificate-authority": str(authority.ca_file)}
        file = tmp_path / "kubeconfig"
        file.write_text(
            api.kubeconfig(
                **{"client-certificate": str(client.cert), "client-key": str(client.key)}
            )
        )
        api.then(json({}, **headers), json({}))
        async with await connect(str(file), user_agent="t") as kube:
            await kube.get(POD, "ns", "p")
            renewed = authority.issue("after")
            renewed.key.replace(client.key)
            renewed.cert.replace(client.cert)
            await kube.get(POD, "ns", "p")
        assert [seen.client for seen in api.seen] == ["before", "after"]


async def test_a_server_of_another_authority_is_refused(
    tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority(tmp_path / "stranger")
    async with ScriptedApi().serving(authority.server_context(verify=ssl.CERT_NONE)) as api:
        api.cluster = {"certificate-authority": str(stranger.ca_file)}
        file = tmp_path / "kubeconfig"
        file.write_text(api.kubeconfig(token="t"))
        with pytest.raises(Unreachable, match="certificate"):
            await ask(api, file)
        api.cluster = {"insecure-skip-tls-verify": True}
        file.write_text(api.kubeconfig(token="t"))
        api.then(json({}))
        await ask(api, file)


async def test_the_account_of_a_pod_is_used_and_its_token_rotates(
    tmp_path: Path, authority: Authority
) -> None:
    token = tmp_path / "token"
    token.write_text("pod-1")
    context = authority.server_context(verify=ssl.CERT_NONE)
    async with ScriptedApi().serving(context) as api:
        api.then(json({}), json({}))
        port = api.url.rpartition(":")[2]
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        source = InClusterSource(
            environ=environ, token_file=str(token), ca_file=str(authority.ca_file)
        )
        async with await connect(source=source, user_agent="t") as kube:
            await kube.get(POD, "ns", "p")
            token.write_text("pod-two")
            await kube.get(POD, "ns", "p")
        assert tokens(api) == ["Bearer pod-1", "Bearer pod-two"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ("", "is empty"),
        ("{", "while parsing"),
        ("apiVersion: v1\nkind: Config\n", "current-context"),
        (
            "current-context: x\ncontexts: [{name: y, context: {cluster: c}}]\nclusters: []\n",
            "name x",
        ),
    ],
    ids=["missing", "empty", "no YAML", "no context", "unknown context"],
)
async def test_a_kubeconfig_that_cannot_work_is_named_with_its_fault(
    tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Rejected, match=said) as caught:
        await connect(str(file), user_agent="t")
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_context_can_be_chosen(api: ScriptedApi, tmp_path: Path) -> None:
    config = yaml.safe_load(api.kubeconfig(token="a"))
    config["users"].append({"name": "v", "user": {"token": "b"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "v"}})
    file = tmp_path / "kubeconfig"
    file.write_text(stdjson.dumps(config))
    api.then(json({}))
    async with await connect(str(file), context="other", user_agent="t") as kube:
        await kube.get(POD, "ns", "p")
    assert tokens(api) == ["Bearer b"]


def test_without_any_configuration_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Rejected, match="--kubeconfig"):
        find_source(None, context=None, clock=SystemClock(), environ={})


async def test_the_address_that_is_given_goes_before_that_of_the_kubeconfig(
    api: ScriptedApi, tmp_path: Path
) -> None:
    config = yaml.safe_load(api.kubeconfig(token="a"))
    server = config["clusters"][0]["cluster"]["server"]
    config["clusters"][0]["cluster"]["server"] = "https://elsewhere.invalid:1"
    file = tmp_path / "kubeconfig"
    file.write_text(stdjson.dumps(config))
    api.then(json({}))
    async with await connect(str(file), master=f"{server}/", user_agent="t") as kube:
        await kube.get(POD, "ns", "p")
    assert tokens(api) == ["Bearer a"]


async def test_the_account_of_a_pod_is_not_shown_to_an_address_that_is_given() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    source = find_source(
        None, context=None, master="10.9.9.9:8080", clock=SystemClock(), environ=environ
    )
    loaded = await source.load()
    assert loaded.host == "http://10.9.9.9:8080"
    assert loaded.authorization is None


@pytest.mark.parametrize("address", ["ftp://there", "http://", "https:///path", "http://h:port"])
def test_an_address_that_is_none_is_refused_by_the_flags_name(address: str) -> None:
    with pytest.raises(Rejected, match="--master"):
        find_source(None, context=None, master=address, clock=SystemClock(), environ={})


def test_the_environment_is_used_before_the_account_of_the_pod() -> None:
    environ = {"KUBECONFIG": "/somewhere", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    source = find_source(None, context=None, clock=SystemClock(), environ=environ)
    assert isinstance(source, KubeconfigSource)


async def test_paths_are_relative_to_the_file_of_their_own_entry(
    tmp_path: Path, authority: Authority
) -> None:
    client = authority.issue("someone")
    async with ScriptedApi().serving(authority.server_context()) as api:
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        for folder in (ours, theirs):
            folder.mkdir()
        (ours / "ca.crt").write_bytes(authority.ca_file.read_bytes())
        (theirs / "me.crt").write_bytes(client.cert.read_bytes())
        (theirs / "me.key").write_bytes(client.key.read_bytes())
        api.cluster = {"certificate-authority": "ca.crt"}
        whole = yaml.safe_load(
            api.kubeconfig(**{"client-certificate": "me.crt", "client-key": "me.key"})
        )
        users = {"users": whole.pop("users")}
        (ours / "config").write_text(yaml.safe_dump(whole))
        (theirs / "config").write_text(yaml.safe_dump(users))
        api.then(json({}))
        paths = f"{ours / 'config'}:{theirs / 'config'}:{tmp_path / 'absent'}"
        async with await connect(paths, user_agent="t") as kube:
            await kube.get(POD, "ns", "p")
        assert [seen.client for seen in api.seen] == ["someone"]


async def test_of_several_files_the_first_to_say_something_counts(
    api: ScriptedApi, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(api.kubeconfig(token="a"))
    config = yaml.safe_load(api.kubeconfig(token="b"))
    config["current-context"] = "nowhere"
    second.write_text(yaml.safe_dump(config))
    api.then(json({}))
    async with await connect(f"{first}:{second}", user_agent="t") as kube:
        await kube.get(POD, "ns", "p")
    assert tokens(api) == ["Bearer a"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"certificate-authority-data": "%%%"}, "certificate-authority-data is no base64"),
        ({"server": ""}, "the cluster has no server"),
    ],
)
def test_a_cluster_that_cannot_be_reached_so_is_found_without_a_connection(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    api = ScriptedApi()
    api.url = "https://127.0.0.1:1"
    config = yaml.safe_load(api.kubeconfig(token="a"))
    config["clusters"][0]["cluster"] |= change
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(Rejected, match=said):
        KubeconfigSource(str(file), context=None, clock=SystemClock()).check()
