"""Runs the credential plugin of a kubeconfig (client.authentication.k8s.io)."""

import asyncio
import contextlib
import datetime as dt
import json
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shared.kube.kubeconfig import BadKubeconfigError, Section
from shared.runtime.errors import Retryable

TIMEOUT_S: Final = 60.0
_COLLECT_S: Final = 1.0
_CLUSTER: Final = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
)


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials of a plugin: a token, or a certificate and its key in PEM."""

    token: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    expires_at: float | None = None
    """Unix seconds, None when it does not say."""


async def run(user: Section, cluster: Section) -> Credential:
    """Run the plugin of a user section.

    Raises OSError when it cannot be started, Retryable when it fails, hangs, or says nothing that
    can be used.
    """
    section = user.fields["exec"]
    for key in ("command", "apiVersion"):
        if not section.get(key):
            raise BadKubeconfigError(f"users: exec has no {key}")
    command = str(section["command"])
    if os.sep in command:  # relative to the kubeconfig, as in Go's client
        command = str(user.base / command)
    process = await asyncio.create_subprocess_exec(
        command,
        *map(str, section.get("args") or ()),
        env=_environment(section, cluster),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError as exc:
        raise Retryable("the credential plugin hangs") from exc
    finally:
        await _end(process)
    if process.returncode:
        complaint = " ".join(err.decode(errors="replace").split())
        raise Retryable(f"exec: process returned {process.returncode}. {complaint}".rstrip(". "))
    return read(out, api_version=str(section["apiVersion"]))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that is still there and collect it, so that no zombie is left behind."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_COLLECT_S):
            await process.wait()


def _environment(section: Mapping[str, Any], cluster: Section) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": False}
    if section.get("provideClusterInfo"):
        spec["cluster"] = {
            name: cluster.fields[name] for name in _CLUSTER if name in cluster.fields
        }
    info = {"apiVersion": section["apiVersion"], "kind": "ExecCredential", "spec": spec}
    more = {str(item["name"]): str(item["value"]) for item in section.get("env") or ()}
    return {**os.environ, **more, "KUBERNETES_EXEC_INFO": json.dumps(info)}


def read(out: bytes, *, api_version: str) -> Credential:
    """Return the credential that a plugin printed. Raises Retryable."""
    try:
        credential = json.loads(out)
        if credential["apiVersion"] != api_version:
            raise Retryable(
                f"exec: the plugin speaks {credential['apiVersion']}, not {api_version}"
            )
        status = credential["status"]
        expiry = status.get("expirationTimestamp")
        expires_at = dt.datetime.fromisoformat(expiry).timestamp() if expiry else None
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Retryable(f"exec: the plugin printed no ExecCredential: {exc}") from exc
    if not status.get("token") and not (certificate and key):
        raise Retryable("exec: the plugin handed out neither a token nor a certificate and key")
    return Credential(
        token=str(status.get("token") or ""),
        certificate=certificate.encode() if certificate else None,
        key=key.encode() if key else None,
        expires_at=expires_at,
    )
