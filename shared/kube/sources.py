"""Where credentials come from: a kubeconfig, or the account that a pod is given.

What is read again, and when, is decided here. A token file beside an inline token wins, as in Go's
client, and the newline at its end is no part of the token.
"""

import base64
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from shared.kube import exec_plugin, kubeconfig
from shared.kube.credentials import Access, Loaded, Source
from shared.kube.kubeconfig import BadKubeconfigError, Context, Section
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable

_HOME_KUBECONFIG: Final = "~/.kube/config"
_PROVIDER_RECHECK_S: Final = 60.0
"""How often an OIDC or GCP token is checked; the library renews it 5 min before it expires."""
_EARLY_S: Final = 60.0
_EARLY_SHARE: Final = 0.2
"""A plugin's token is renewed a minute, or a fifth of its life, before it expires."""
_LEAST_LIFE_S: Final = 1.0
_HOST: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "KUBERNETES_SERVICE_PORT"
_USUAL_NAMESPACE: Final = "pumice-system"
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


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

    async def load(self) -> Loaded:
        """Load from the other source. Raises as it does."""
        if self._source is None:
            return Loaded(access=Access(host=self._host), authorization=None)
        loaded = await self._source.load()
        return msgspec.structs.replace(
            loaded, access=msgspec.structs.replace(loaded.access, host=self._host)
        )


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
        """Return the namespace of the context, "" if it has none or cannot be read."""
        try:
            return kubeconfig.load(self._path, self._context).namespace
        except (BadKubeconfigError, Rejected):
            return ""

    def check(self) -> None:
        """Read the file without running anything. Raises Rejected, which names the file."""
        try:
            _access(kubeconfig.load(self._path, self._context))
        except BadKubeconfigError as exc:
            raise self._rejected(exc) from exc

    async def load(self) -> Loaded:
        """Read the file and obtain a credential. Raises Rejected (names the file) or Retryable."""
        try:
            context = kubeconfig.load(self._path, self._context)
            if context.user.fields.get("auth-provider"):
                return await self._from_provider(context)
            if context.user.fields.get("exec"):
                return await self._from_plugin(context)
            return Loaded(
                access=_access(context),
                authorization=_authorization(context.user),
                files=_watched(context.user),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise self._rejected(exc) from exc

    def _rejected(self, exc: Exception) -> Rejected:
        return Rejected(f"kubeconfig {self._path}: {_one_line(exc)}", field="kubeconfig")

    async def _from_provider(self, context: Context) -> Loaded:
        return Loaded(
            access=_access(context),
            authorization=await _provided(self._path, self._context),
            files=_watched(context.user),
            reload_at=self._clock.now() + _PROVIDER_RECHECK_S,
        )

    async def _from_plugin(self, context: Context) -> Loaded:
        try:
            found = await exec_plugin.run(context.user, context.cluster)
        except Retryable as exc:
            raise Retryable(f"kubeconfig {self._path}: {exc}") from exc
        except OSError as exc:
            raise Rejected(
                _plugin_missing(self._path, context.user, exc), field="kubeconfig"
            ) from exc
        return Loaded(
            access=_access(context, certificate=found.certificate, key=found.key),
            authorization=f"Bearer {found.token}" if found.token else None,
            files=_watched(context.user),
            reload_at=self._reload_at(found.expires_at),
        )

    def _reload_at(self, expires_at: float | None) -> float | None:
        if expires_at is None:
            return None
        now = self._clock.now()
        life_s = expires_at - now
        early_s = min(_EARLY_S, life_s * _EARLY_SHARE)
        return now + max(life_s - early_s, _LEAST_LIFE_S)


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
        self._token_file = Path(token_file)
        self._ca_file = Path(ca_file)

    @staticmethod
    def is_offered(environ: Mapping[str, str]) -> bool:
        """Tell whether Kubernetes set the address of its API server for this process."""
        return bool(environ.get(_HOST))

    async def load(self) -> Loaded:
        """Read the mounted files. Raises Rejected when one is missing or empty."""
        try:
            token = " ".join(self._token_file.read_text(encoding="utf-8").split())
            empty = not self._ca_file.read_bytes().strip() or not token
        except (OSError, UnicodeDecodeError) as exc:
            raise Rejected(f"the pod's service account cannot be used: {exc}") from exc
        if empty or not self._environ.get(_PORT):
            what = "its token or certificate is empty" if empty else f"{_PORT} is not set"
            raise Rejected(f"the pod's service account cannot be used: {what}")
        host, port = self._environ[_HOST], self._environ[_PORT]
        return Loaded(
            access=Access(host=f"https://{_bracketed(host)}:{port}", ca=self._ca_file),
            authorization=f"Bearer {token}",
            files=(self._token_file, self._ca_file),
        )


def _access(
    context: Context, *, certificate: bytes | None = None, key: bytes | None = None
) -> Access:
    """Return where and how to connect. Raises BadKubeconfigError."""
    cluster, user = context.cluster, context.user
    host = str(cluster.fields.get("server") or "").rstrip("/")
    if not host:
        raise BadKubeconfigError("the cluster has no server")
    return Access(
        host=host,
        verify=not cluster.fields.get("insecure-skip-tls-verify"),
        server_name=cluster.fields.get("tls-server-name"),
        proxy=cluster.fields.get("proxy-url"),
        ca=cluster.material("certificate-authority"),
        certificate=certificate or user.material("client-certificate"),
        key=key or user.material("client-key"),
    )


def _authorization(user: Section) -> str | None:
    """Return the header for a token, or a name and a password."""
    token = str(user.fields.get("token") or "")
    if (file := user.path("tokenFile")) is not None:
        try:
            token = file.read_text(encoding="utf-8")
        except OSError as exc:
            raise BadKubeconfigError(f"{file}: {exc.strerror or 'cannot be read'}") from exc
    if token := " ".join(token.split()):
        return f"Bearer {token}"
    if user.fields.get("username") and "password" in user.fields:
        pair = f"{user.fields['username']}:{user.fields['password']}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return None


def _watched(user: Section) -> tuple[Path, ...]:
    names = ("tokenFile", "client-certificate", "client-key")
    return tuple(path for name in names if (path := user.path(name)) is not None)


def _plugin_missing(path: str, user: Section, exc: OSError) -> str:
    section = user.fields["exec"]
    hint = _one_line(section.get("installHint") or "")
    text = f"kubeconfig {path}: {section.get('command', 'file')}: {exc.strerror}"
    return f"{text} ({hint})" if hint else text


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host  # noqa: PLR2004
    except ValueError:
        return host


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


async def _provided(path: str, context: str | None) -> str | None:
    """Return the header for an old `auth-provider` section (oidc, gcp), renewed if it was due.

    kubernetes-asyncio renews it. Few kubeconfigs have such a section, and the library's import
    takes as long as all else at a service's start: it is imported only here.
    Raises ValueError when the section cannot be used.
    """
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException, kube_config

    merger = kube_config.KubeConfigMerger(path)
    loader = kube_config.KubeConfigLoader(
        config_dict=merger.config, active_context=context, config_persister=merger.save_changes
    )
    configuration: Any = Configuration()
    try:
        await loader.load_and_set(configuration)
    except (ConfigException, KeyError, AttributeError, TypeError) as exc:
        raise ValueError(" ".join(str(exc).split())) from exc
    finally:
        kube_config._cleanup_temp_files()  # noqa: SLF001 - keys must not outlive a kill -9
    value = configuration.api_key.get("BearerToken")
    return None if value is None else str(value)
