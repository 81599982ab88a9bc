"""Credential plugins of kubeconfigs: what they hand out, when they run, and how they fail."""

import datetime as dt
import json as stdjson
import stat
from pathlib import Path

import pytest

from pumice.local.authority import Pair
from shared.api.kinds import POD
from shared.kube import sources
from shared.kube.config import connect
from shared.runtime.clock import SystemClock
from shared.runtime.errors import Rejected, Retryable
from tests.support.certificates import Authority
from tests.support.scripted_api import ScriptedApi, json, status
from tests.unit.kube.test_credentials import ask, tokens

PLUGIN = """#!/bin/sh
n=$(cat "{dir}/n"); n=$((n + 1)); echo $n > "{dir}/n"
cat <<EOF
{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{"token": "t$n"{expiry}}}}}
EOF
"""


def write_plugin(directory: Path, expires_in_s: float | None = None) -> Path:
    """A plugin that hands out t1, t2, … and counts its runs in the file `n`."""
    (directory / "n").write_text("0\n")
    expiry = ""
    if expires_in_s is not None:
        at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=expires_in_s)
        expiry = f', "expirationTimestamp": "{at:%Y-%m-%dT%H:%M:%SZ}"'
    file = directory / "plugin"
    file.write_text(PLUGIN.format(dir=directory, expiry=expiry))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def exec_section(command: str, **more: str) -> dict[str, object]:
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "interactiveMode": "Never",
        **more,
    }


async def test_a_plugin_without_expiry_runs_once_and_again_after_a_401(
    api: ScriptedApi, tmp_path: Path
) -> None:
    write_plugin(tmp_path)
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(exec=exec_section("./plugin")))
    api.then(json({}), json({}), status(401), json({}))
    await ask(api, file, times=3)
    assert tokens(api) == ["Bearer t1", "Bearer t1", "Bearer t1", "Bearer t2"]


async def test_a_plugin_that_helps_no_more_is_not_run_for_each_401(
    api: ScriptedApi, tmp_path: Path
) -> None:
    write_plugin(tmp_path)
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(exec=exec_section("./plugin")))
    api.then(*[status(401, "Unauthorized")] * 10)
    async with await connect(str(file), user_agent="t") as kube:
        for _ in range(4):
            with pytest.raises(Retryable, match="Unauthorized"):
                await kube.get(POD, "ns", "p")
    assert (tmp_path / "n").read_text().strip() == "2"


async def test_a_plugin_token_is_renewed_before_it_expires(
    api: ScriptedApi, tmp_path: Path
) -> None:
    clock = SteppedClock()
    write_plugin(tmp_path, expires_in_s=100)
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(exec=exec_section("./plugin")))
    api.then(*[json({})] * 3)
    async with await connect(str(file), user_agent="t", clock=clock) as kube:
        await kube.get(POD, "ns", "p")
        clock.ahead_s = 70
        await kube.get(POD, "ns", "p")
        clock.ahead_s = 85
        await kube.get(POD, "ns", "p")
    assert tokens(api) == ["Bearer t1", "Bearer t1", "Bearer t2"]


class SteppedClock(SystemClock):
    """The system's clock, moved ahead by a test."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


async def test_a_plugin_that_fails_later_leaves_the_old_token_in_use(
    api: ScriptedApi, tmp_path: Path
) -> None:
    clock = SteppedClock()
    plugin = write_plugin(tmp_path, expires_in_s=100)
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(exec=exec_section("./plugin")))
    api.then(*[json({})] * 2)
    async with await connect(str(file), user_agent="t", clock=clock) as kube:
        await kube.get(POD, "ns", "p")
        plugin.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
        clock.ahead_s = 99
        await kube.get(POD, "ns", "p")
    assert tokens(api) == ["Bearer t1", "Bearer t1"]


async def test_a_plugin_that_fails_at_the_start_says_what_it_said(
    api: ScriptedApi, tmp_path: Path
) -> None:
    plugin = write_plugin(tmp_path)
    plugin.write_text("#!/bin/sh\necho please log in >&2\nexit 1\n")
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(exec=exec_section("./plugin")))
    with pytest.raises(Retryable, match="please log in"):
        await ask(api, file)


async def test_a_plugin_that_is_not_installed_gives_its_hint(
    api: ScriptedApi, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    section = exec_section("no-such-plugin", installHint="get it from\nexample.com")
    file.write_text(api.kubeconfig(exec=section))
    with pytest.raises(Rejected, match=r"no-such-plugin: No such file.*get it from example\.com"):
        await ask(api, file)


def write_certificate(directory: Path, client: Pair, expires_in_s: float | None = None) -> None:
    """A plugin that hands out a certificate, and notes in the file `info` what it is told."""
    status = {
        "clientCertificateData": client.cert.read_text(),
        "clientKeyData": client.key.read_text(),
    }
    if expires_in_s is not None:
        at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=expires_in_s)
        status["expirationTimestamp"] = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    version = "client.authentication.k8s.io/v1"
    told = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    (directory / "credential").write_text(stdjson.dumps(told))
    plugin = directory / "plugin"
    plugin.write_text(
        f'#!/bin/sh\necho "$KUBERNETES_EXEC_INFO" > {directory}/info\ncat {directory}/credential\n'
    )
    plugin.chmod(0o755)


async def test_a_plugin_may_hand_out_a_certificate_and_is_told_of_the_cluster(
    tmp_path: Path, authority: Authority
) -> None:
    write_certificate(tmp_path, authority.issue("someone"))
    async with ScriptedApi().serving(authority.server_context()) as api:
        api.cluster = {"certificate-authority": str(authority.ca_file)}
        file = tmp_path / "kubeconfig"
        section = exec_section("./plugin") | {"provideClusterInfo": True}
        file.write_text(api.kubeconfig(exec=section))
        api.then(json({}))
        await ask(api, file)
        assert [seen.client for seen in api.seen] == ["someone"]
        info = stdjson.loads((tmp_path / "info").read_text())
        assert info["spec"]["cluster"]["server"] == api.url


async def test_a_certificate_of_a_plugin_is_renewed_before_it_expires(
    tmp_path: Path, authority: Authority
) -> None:
    clock = SteppedClock()
    write_certificate(tmp_path, authority.issue("before"), expires_in_s=100)
    async with ScriptedApi().serving(authority.server_context()) as api:
        api.cluster = {"certificate-authority": str(authority.ca_file)}
        file = tmp_path / "kubeconfig"
        file.write_text(api.kubeconfig(exec=exec_section("./plugin")))
        api.then(json({}), json({}))
        async with await connect(str(file), user_agent="t", clock=clock) as kube:
            await kube.get(POD, "ns", "p")
            write_certificate(tmp_path, authority.issue("after"), expires_in_s=200)
            clock.ahead_s = 85
            await kube.get(POD, "ns", "p")
        assert [seen.client for seen in api.seen] == ["before", "after"]


async def test_a_plugin_that_hangs_is_given_up_and_ended(
    api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PLUGIN_TIMEOUT_S", 0.3)
    plugin = write_plugin(tmp_path)
    plugin.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    file = tmp_path / "kubeconfig"
    file.write_text(api.kubeconfig(exec=exec_section("./plugin")))
    with pytest.raises(Retryable, match="the credential plugin hangs"):
        await ask(api, file)
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists(), "nor is it left behind as a zombie"
