"""Where credentials come from: kubeconfigs, or the service account of a pod.

kubernetes-asyncio reads both, renews OIDC and GCP tokens and writes them back. Where it differs
from Go's client, or does less than a service needs, a comment says so. `Access.files` and
`Access.reload_at` decide when something is read again.
"""

import asyncio
import base64
import binascii
import contextlib
import datetime as dt
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from shared.kube import loaders
from shared.kube.credentials import Access, Source
from shared.runtime.clock import Clock
from shared.runtime.errors import PumiceError, Rejected, Retryable

PLUGIN_TIMEOUT_S: Final = 60.0
_COLLECT_S: Final = 1.0
"""How long to wait for the end of a plugin that was killed."""
_HOME_KUBECONFIG: Final = "~/.kube/config"
_PROVIDER_RECHECK_S: Final = 60.0
"""How often an OIDC or GCP token is checked; the library renews it 5 min before it expires."""
_EARLY_S: Final = 60.0
_EARLY_SHARE: Final = 0.2
"""A plugin's token is renewed a minute, or a fifth of its life, before it expires."""
_LEAST_LIFE_S: Final = 1.0
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_USUAL_NAMESPACE: Final = "pumice-system"
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_MATERIAL: Final = tuple(f"{name}-data" for name in _FILES[:3])
_TOLD: Final = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority-data",
    "proxy-url",
)
"""Fields of a cluster that a plugin may ask for."""


class BadKubeconfigError(Rejected):
    """The files can be read, but do not say what is needed."""


def own_namespace(given: str) -> str:
    """Return the namespace that is ours: as given, else that of this pod, else the usual one."""
    if given:
        return given
    try:
        return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or _USUAL_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return _USUAL_NAMESPACE


def find_source(
    kubeconfig: str | None,
    *,
    context: str | None,
    master: str = "",
    clock: Clock,
    environ: Mapping[str, str],
) -> Source:
    """Return where the credentials are to come from; raises Rejected when there is no place.

    With `master`, an address, and no kubeconfig named there are none: the account of a pod is
    for the API server of its own cluster.
    """
    named = kubeconfig or environ.get("KUBECONFIG")
    if master:
        file = KubeconfigSource(named, context=context, clock=clock) if named else None
        return AtAddress(master, file)
    if named:
        return KubeconfigSource(named, context=context, clock=clock)
    if InClusterSource.is_offered(environ):
        return InClusterSource(environ=environ)
    if Path(_HOME_KUBECONFIG).expanduser().exists():
        return KubeconfigSource(_HOME_KUBECONFIG, context=context, clock=clock)
    raise Rejected(
        "no cluster to talk to: give --kubeconfig or set KUBECONFIG "
        f"(there is no {_HOME_KUBECONFIG}, and this is no pod of a cluster)",
        field="kubeconfig",
    )


class AtAddress:
    """Credentials of another source, or none, for an API server whose address is given.

    As in Go's client the address of a flag goes before that of the kubeconfig; one without a
    scheme is plain HTTP.
    """

    def __init__(self, address: str, source: Source | None) -> None:
        """Take an address; raises Rejected for what is none."""
        address = address if "://" in address else f"http://{address}"
        if not _is_server(address):
            raise Rejected(f"--master: {address!r} is no address of a server", field="master")
        self._host = address.rstrip("/")
        self._source = source

    async def load(self) -> Access:
        """Load from the other source. Raises as it does."""
        if self._source is None:
            return Access(host=self._host)
        return msgspec.structs.replace(await self._source.load(), host=self._host)


def _is_server(address: str) -> bool:
    try:
        url = urlsplit(address)
        url.port  # noqa: B018 - raises for what is no port
    except ValueError:
        return False
    return url.scheme in {"http", "https"} and bool(url.hostname)


class KubeconfigSource:
    """A kubeconfig file (or several, joined by `:`) and one of its contexts."""

    def __init__(self, path: str, *, context: str | None, clock: Clock) -> None:
        self._path = path
        self._context = context
        self._clock = clock

    @property
    def namespace(self) -> str:
        """Return the namespace of the context, "" if the file cannot be used."""
        try:
            with self._naming_the_file():
                found = _Kubeconfig(self._path, self._context)
                return str(found.context.get("namespace") or "default")
        except Rejected:
            return ""

    def check(self) -> None:
        """Read the file without running anything. Raises Rejected, which names the file."""
        with self._naming_the_file():
            _Kubeconfig(self._path, self._context)

    async def load(self) -> Access:
        """Read the file and obtain a credential. Raises Rejected or Retryable, with its name."""
        with self._naming_the_file():
            found = _Kubeconfig(self._path, self._context)
            files = tuple(Path(found.user[name]) for name in _FILES if name in found.user)
            reload_at = None
            if "auth-provider" in found.user:
                reload_at = self._clock.now() + _PROVIDER_RECHECK_S
            elif "exec" in found.user:
                reload_at = await self._with_plugin(found)
            try:
                access = await found.access()
            finally:
                # The library leaves inline keys in files until the process ends.
                loaders.kube_config()._cleanup_temp_files()  # noqa: SLF001
        return msgspec.structs.replace(access, files=files, reload_at=reload_at)

    async def _with_plugin(self, found: "_Kubeconfig") -> float | None:
        """Replace the plugin by what it hands out; return when it is to run again."""
        section = found.user.pop("exec")
        try:
            status = await _run_plugin(section, found.cluster)
        except OSError as exc:
            hint = section.get("installHint")
            text = f"{section['command']}: {exc.strerror}" + (f" ({hint})" if hint else "")
            raise Rejected(self._text(text), field="kubeconfig") from exc
        except Retryable as exc:
            raise Retryable(self._text(exc)) from exc
        if status.token:
            found.user["token"] = status.token
        if status.client_certificate_data and status.client_key_data:
            found.user["client-certificate-data"] = _base64(status.client_certificate_data)
            found.user["client-key-data"] = _base64(status.client_key_data)
        if status.expiration_timestamp is None:
            return None
        now = self._clock.now()
        life_s = status.expiration_timestamp.timestamp() - now
        return now + max(life_s - min(_EARLY_S, life_s * _EARLY_SHARE), _LEAST_LIFE_S)

    @contextlib.contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        """Raise errors of the library as Rejected or Retryable, with the file."""
        try:
            yield
        except PumiceError:
            raise
        except Exception as exc:
            if type(exc).__module__.startswith("aiohttp"):  # the identity provider is unavailable
                raise Retryable(self._text(exc)) from exc
            text: object = exc
            if isinstance(exc, OSError):
                named = f"{exc.filename}: " if exc.filename not in (None, self._path) else ""
                text = f"{named}{exc.strerror or exc}"
            elif isinstance(exc, KeyError):
                text = f"an entry has no {exc}"
            elif isinstance(exc, TypeError | AttributeError):
                text = "is empty, or no kubeconfig"
            raise BadKubeconfigError(self._text(text), field="kubeconfig") from exc

    def _text(self, fault: object) -> str:
        return " ".join(f"kubeconfig {self._path}: {fault}".split())


class _Kubeconfig:
    """One context of kubeconfigs, as the library reads them. Raises any Exception."""

    def __init__(self, paths: str, context: str | None) -> None:
        if not any(Path(each).expanduser().exists() for each in paths.split(os.pathsep) if each):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT).lower(), paths)
        self._library = loaders.kube_config()
        self._merger = self._library.KubeConfigMerger(paths)
        config = self._merger.config
        # As in Go's client the first current context counts; the library takes the last.
        named = (each.get("current-context") for each in self._merger.config_files.values())
        self._name = context or next(filter(None, named), None) or config["current-context"]
        chosen = config["contexts"].get_with_name(self._name)
        self.context: Mapping[str, Any] = chosen["context"].value
        self.cluster = self._completed("cluster")
        self.user = self._completed("user")
        if not self.cluster.get("server"):
            raise ValueError("the cluster has no server")

    async def access(self) -> Access:
        """Return how to connect, with a token that was renewed if it was due."""
        found: Any = SimpleNamespace(api_key={}, verify_ssl=True, tls_server_name=None, proxy=None)
        loader = self._library.KubeConfigLoader(
            config_dict=self._merger.config,
            active_context=self._name,
            config_base_path=None,
            config_persister=lambda _: self._merger.save_changes(),
        )
        await loader.load_and_set(found)
        return Access(
            host=found.host,
            verify=found.verify_ssl,
            server_name=found.tls_server_name,
            proxy=found.proxy,
            ca=_content(found, "ssl_ca_cert"),
            certificate=_content(found, "cert_file"),
            key=_content(found, "key_file"),
            authorization=_authorization(found),
        )

    def _completed(self, kind: str) -> dict[str, Any]:
        """Return the cluster or the user, changed where the library is not as Go's client.

        Paths are relative to the file of their own entry; a token file goes before a token; a
        plugin is searched for beside the kubeconfig; empty fields are absent; text that is no
        base64 is an error. Files on disk keep their content: the entry is a copy.
        """
        entry = self._merger.config[f"{kind}s"].get_with_name(self.context.get(kind))
        given = entry.value.get(kind) or {}
        fields = {name: value for name, value in given.items() if value not in (None, "")}
        base = Path(entry.path).absolute().parent
        for name in _FILES:
            if name in fields:
                fields[name] = str(base / Path(str(fields[name])).expanduser())
        if "tokenFile" in fields:
            fields.pop("token", None)
        if os.sep in str(fields.get("exec", {}).get("command", "")):
            fields["exec"] = {**fields["exec"], "command": str(base / fields["exec"]["command"])}
        for name in _MATERIAL:
            try:
                base64.b64decode("".join(str(fields.get(name, "")).split()), validate=True)
            except binascii.Error as exc:
                raise ValueError(f"{name} is no base64: {exc}") from exc
        entry.value = {**entry.value, kind: fields}
        return fields


class _PluginStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: dt.datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    status: _PluginStatus


async def _run_plugin(section: Mapping[str, Any], cluster: Mapping[str, Any]) -> _PluginStatus:
    """Run a credential plugin (client.authentication.k8s.io) and return what it hands out.

    The library's own run has no time limit, leaves the process behind when it is cancelled, tells
    the plugin nothing of the cluster, lends it the terminal, and forgets when a certificate
    expires. Raises OSError when it cannot be started, Retryable when it fails, hangs, or prints
    nothing that can be used.
    """
    library = loaders.kube_config()
    provider = library.ExecProvider(library.ConfigNode("exec", section))
    spec: dict[str, Any] = {"interactive": False}
    if section.get("provideClusterInfo"):
        spec["cluster"] = {name: cluster[name] for name in _TOLD if name in cluster}
    info = {"apiVersion": provider.api_version, "kind": "ExecCredential", "spec": spec}
    environ = {name: str(value) for name, value in provider.env.items()}
    process = await asyncio.create_subprocess_exec(
        *map(str, provider.args),
        env={**environ, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError as exc:
        raise Retryable("the credential plugin hangs") from exc
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COLLECT_S):
                    await process.wait()
    if process.returncode:
        complaint = err.decode(errors="replace")
        raise Retryable(f"exec: process returned {process.returncode}. {complaint}".rstrip(". \n"))
    try:
        found = msgspec.json.decode(out, type=_ExecCredential)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Retryable(f"exec: the plugin printed no ExecCredential: {exc}") from exc
    if found.api_version != provider.api_version:
        speaks = f"{found.api_version}, not {provider.api_version}"
        raise Retryable(f"exec: the plugin speaks {speaks}")
    status = found.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise Retryable("exec: the plugin handed out neither a token nor a certificate and key")
    return status


class InClusterSource:
    """The service account of the pod that we run in; its token file rotates."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        token_file: str = str(_ACCOUNT / "token"),
        ca_file: str = str(_ACCOUNT / "ca.crt"),
    ) -> None:
        self._environ = environ
        self._token_file = token_file
        self._ca_file = ca_file

    @staticmethod
    def is_offered(environ: Mapping[str, str]) -> bool:
        """Tell whether Kubernetes set the address of its API server for this process."""
        return bool(environ.get(_HOST))

    async def load(self) -> Access:
        """Read the mounted files. Raises Rejected when one is missing or empty."""
        library = loaders.incluster_config()
        found: Any = SimpleNamespace(api_key={})
        try:
            library.InClusterConfigLoader(
                self._token_file, self._ca_file, environ=self._environ
            ).load_and_set(found)
            access = Access(
                host=found.host,
                ca=_content(found, "ssl_ca_cert"),
                authorization=_authorization(found),
                files=(Path(self._token_file), Path(self._ca_file)),
            )
        except (library.ConfigException, OSError, UnicodeDecodeError) as exc:
            raise Rejected(f"the pod's service account cannot be used: {exc}") from exc
        if access.authorization is None:
            raise Rejected("the pod's service account cannot be used: its token is empty")
        return access


def _authorization(found: Any) -> str | None:  # noqa: ANN401 - filled by the library
    """Return the header that the library found; the newline of a file is no part of a token."""
    scheme, *credential = found.api_key.get("BearerToken", "none").split()
    return " ".join((scheme, *credential)) if credential else None


def _content(found: Any, name: str) -> bytes | None:  # noqa: ANN401 - filled by the library
    """Return the content of a file that the library found."""
    path = getattr(found, name, None)
    return None if path is None else Path(path).read_bytes()


def _base64(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()
