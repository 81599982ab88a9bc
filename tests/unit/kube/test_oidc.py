"""OIDC tokens of kubeconfigs: used, renewed at the identity provider, and written back."""

import base64
import json as stdjson
import ssl
from pathlib import Path

import pytest
import yaml

from shared.runtime.errors import Retryable
from tests.support.certificates import Authority
from tests.support.scripted_api import ScriptedApi, json
from tests.unit.kube.test_credentials import ask, tokens

LATER = 4102444800


def id_token(expires_at: int) -> str:
    """An OIDC token without a signature."""

    def part(content: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(stdjson.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': expires_at})}.x"


def expired(issuer: str) -> dict[str, str]:
    """The settings of an auth-provider whose token has expired."""
    return {
        "client-id": "c",
        "client-secret": "s",
        "id-token": id_token(1),
        "idp-issuer-url": issuer,
        "refresh-token": "r1",
    }


async def test_the_token_of_an_auth_provider_is_used(api: ScriptedApi, tmp_path: Path) -> None:
    token = id_token(LATER)
    file = tmp_path / "kubeconfig"
    provider = {"name": "oidc", "config": {"id-token": token}}
    file.write_text(api.kubeconfig(**{"auth-provider": provider}))
    api.then(json({}))
    await ask(api, file)
    assert tokens(api) == [f"Bearer {token}"]


async def test_an_expired_oidc_token_is_renewed_and_written_back(
    api: ScriptedApi, tmp_path: Path
) -> None:
    renewed = id_token(LATER)
    config = expired(f"{api.url}/idp")
    file = tmp_path / "kubeconfig"
    section = {"name": "oidc", "config": config}
    file.write_text(api.kubeconfig(**{"auth-provider": section, "client-key": "../own.key"}))
    api.then(
        json({"token_endpoint": f"{api.url}/token"}),
        json({"id_token": renewed, "refresh_token": "r2"}),
        json({}),
    )
    await ask(api, file)
    assert [seen.path for seen in api.seen][:2] == [
        "/idp/.well-known/openid-configuration",
        "/token",
    ]
    assert tokens(api)[2] == f"Bearer {renewed}"
    user = yaml.safe_load(file.read_text())["users"][0]["user"]
    assert user["auth-provider"]["config"]["id-token"] == renewed
    assert user["auth-provider"]["config"]["refresh-token"] == "r2"
    assert user["client-key"] == "../own.key", "the rest of the file stays as it was written"


async def test_an_identity_provider_has_to_show_a_certificate_of_its_authority(
    api: ScriptedApi, tmp_path: Path, authority: Authority
) -> None:
    context = authority.server_context(verify=ssl.CERT_NONE)
    async with ScriptedApi().serving(context) as provider:
        config = expired(provider.url)
        file = tmp_path / "kubeconfig"
        section = {"name": "oidc", "config": config}
        file.write_text(api.kubeconfig(**{"auth-provider": section}))
        with pytest.raises(Retryable, match="certificate"):
            await ask(api, file)
        assert provider.seen == []
        pem = base64.b64encode(authority.ca_file.read_bytes()).decode()
        config["idp-certificate-authority-data"] = pem
        file.write_text(api.kubeconfig(**{"auth-provider": section}))
        provider.then(
            json({"token_endpoint": f"{provider.url}/token"}),
            json({"id_token": id_token(LATER), "refresh_token": "r2"}),
        )
        api.then(json({}))
        await ask(api, file)
        assert tokens(api) == [f"Bearer {id_token(LATER)}"]


async def test_an_identity_provider_that_is_away_makes_the_start_retryable(
    api: ScriptedApi, tmp_path: Path
) -> None:
    config = expired("http://127.0.0.1:1")
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(**{"auth-provider": {"name": "oidc", "config": config}}))
    with pytest.raises(Retryable, match="Cannot connect") as caught:
        await ask(api, file)
    assert str(file) in str(caught.value)
