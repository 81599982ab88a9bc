"""Where no authority is named, those of the system count: from the first TLS connection on."""

import ssl
from pathlib import Path

import pytest

from shared.api.kinds import POD
from shared.kube.config import connect
from tests.support.certificates import Authority
from tests.support.scripted_api import ScriptedApi, json
from tests.unit.kube.test_credentials import tokens


async def test_a_kubeconfig_that_turns_to_tls_trusts_the_authorities_of_the_system(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    (tmp_path / "token").write_text("plain\n")
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(tokenFile="token"))
    api.then(json({}))
    server = authority.server_context(verify=ssl.CERT_NONE)
    async with (
        ScriptedApi().serving(server) as secure,
        await connect(str(file), user_agent="t") as kube,
    ):
        await kube.get(POD, "ns", "p")
        file.write_text(secure.kubeconfig(tokenFile="token"))
        (tmp_path / "new").write_text("secure\n")
        (tmp_path / "new").rename(tmp_path / "token")
        secure.then(json({}))
        await kube.get(POD, "ns", "p")
        assert tokens(secure) == ["Bearer secure"]
    assert tokens(api) == ["Bearer plain"]
