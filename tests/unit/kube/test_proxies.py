"""A proxy that the environment names, and what else of it must not matter."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import yaml

from shared.api.kinds import POD
from shared.kube.client import Kube
from shared.kube.config import connect
from shared.kube.errors import Unreachable
from shared.kube.transport import proxy_of_environment
from shared.runtime.errors import Rejected
from tests.support.scripted_api import ScriptedApi, json

FAR = "http://apiserver.invalid:6443"
Connect = Callable[[str], Awaitable[AbstractAsyncContextManager[Kube]]]
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.fixture
def client(api: ScriptedApi, tmp_path: Path) -> Connect:
    """Connect to an address as the kubeconfig of a user with a token says."""

    def open_one(host: str) -> Awaitable[AbstractAsyncContextManager[Kube]]:
        config = yaml.safe_load(api.kubeconfig(token="t0"))
        config["clusters"][0]["cluster"]["server"] = host
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return connect(str(file), user_agent="test/1", request_timeout_s=5)

    return open_one


async def test_a_proxy_of_the_environment_is_asked_for_an_api_server_elsewhere(
    api: ScriptedApi, client: Connect, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTP_PROXY", api.url)
    api.then(json({"name": "p"}))
    async with await client(FAR) as kube:
        assert b'"p"' in await kube.get(POD, "ns", "p")
    assert len(api.seen) == 1


async def test_exceptions_and_this_machine_are_asked_without_it(
    api: ScriptedApi, client: Connect, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    api.then(json({"name": "p"}))
    async with await client(api.url) as kube:
        assert b'"p"' in await kube.get(POD, "ns", "p")
    environment.setenv("HTTP_PROXY", api.url)
    environment.setenv("NO_PROXY", "other, .invalid")
    async with await client(FAR) as kube:
        with pytest.raises(Unreachable):
            await kube.get(POD, "ns", "p")
    assert len(api.seen) == 1


async def test_an_account_in_a_netrc_takes_no_part(
    api: ScriptedApi, client: Connect, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login someone password s3cret\n")
    environment.setenv("NETRC", str(netrc))
    environment.setenv("HTTP_PROXY", api.url)
    api.then(json({"name": "p"}))
    async with await client(FAR) as kube:
        await kube.get(POD, "ns", "p")
    assert api.seen[0].headers["Authorization"] == "Bearer t0"


@pytest.mark.parametrize(
    ("variables", "host", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:3128"}, "https://10.0.0.1", "http://p:3128"),
        ({"https_proxy": "p:3128"}, "https://10.0.0.1", "http://p:3128"),
        ({"HTTPS_PROXY": "http://u:w@p:3128"}, "https://10.0.0.1", "http://u:w@p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, "https://10.0.0.1", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https://127.0.0.1:6443", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https://localhost:6443", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.1"}, "https://10.0.0.1", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, "https://10.0.0.1", None),
        ({"HTTPS_PROXY": ""}, "https://10.0.0.1", None),
        ({}, "https://10.0.0.1", None),
    ],
)
def test_the_proxy_of_an_address_is_what_the_environment_says(
    environment: pytest.MonkeyPatch, variables: dict[str, str], host: str, proxy: str | None
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert proxy_of_environment(host) == proxy


def test_a_proxy_that_speaks_no_http_is_refused_by_name(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "socks5://p:1080")
    with pytest.raises(Rejected, match="HTTPS_PROXY") as caught:
        proxy_of_environment("https://10.0.0.1")
    assert caught.value.field == "HTTPS_PROXY"
