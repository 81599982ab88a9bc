"""Where credentials come from: a kubeconfig, or the account that a pod is given.

kubernetes-asyncio reads kubeconfigs, runs exec plugins and refreshes OIDC tokens; this module
decides what is read again and when, and repairs four things on the way: a token file that ends in
a newline, a token file beside a stale inline token (the file wins, as in Go's client), a plugin
named relative to its kubeconfig, and key material left behind in temporary files after a kill.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, kube_config
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

from shared.kube.credentials import Loaded
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected, Retryable

_PLUGIN_TIMEOUT_S: Final = 60.0
_PROVIDER_RECHECK_S: Final = 60.0
"""How often an OIDC or GCP token is looked at; the library renews it 5 min before it expires."""
_EARLY_S: Final = 60.0
_EARLY_SHARE: Final = 0.2
"""A plugin's token is renewed a minute, or a fifth of its life, before it expires."""
_LEAST_LIFE_S: Final = 1.0


class KubeconfigSource:
    """A kubeconfig file (or several, joined by `:`) and one of its contexts."""

    def __init__(self, path: str, *, context: str | None, clock: Clock) -> None:
        self._path = path
        self._context = context
        self._clock = clock

    async def load(self) -> Loaded:
        """Read the file and obtain a credential. Raises Rejected (names the file) or Retryable."""
        try:
            return await self._load()
        except (ConfigException, yaml.YAMLError, TypeError, KeyError, AttributeError) as exc:
            raise Rejected(
                f"kubeconfig {self._path}: {_one_line(exc)}", field="kubeconfig"
            ) from exc

    async def _load(self) -> Loaded:
        merger = self._read()
        user, base = self._user(merger.config)
        _prepare(user, base)
        persister = merger.save_changes if "auth-provider" in user else None
        loader = kube_config.KubeConfigLoader(
            config_dict=merger.config,
            active_context=self._context,
            config_base_path=None,
            config_persister=persister,
        )
        configuration = Configuration()
        try:
            async with asyncio.timeout(_PLUGIN_TIMEOUT_S):
                await loader.load_and_set(configuration)
        except TimeoutError as exc:
            raise Retryable(f"kubeconfig {self._path}: the credential plugin hangs") from exc
        except OSError as exc:
            raise Rejected(_plugin_missing(self._path, user, exc), field="kubeconfig") from exc
        except ConfigException as exc:
            if "exec" not in user:
                raise
            raise Retryable(f"kubeconfig {self._path}: {_one_line(exc)}") from exc
        return Loaded(
            configuration=configuration,
            authorization=_clean(configuration),
            files=_watched(user, base),
            reload_at=self._reload_at(loader, user),
            forget=kube_config._cleanup_temp_files,  # noqa: SLF001 - keys must not outlive a kill -9
        )

    def _read(self) -> kube_config.KubeConfigMerger:
        for path in filter(None, self._path.split(os.pathsep)):
            try:
                content = yaml.safe_load(Path(path).expanduser().read_text())
            except OSError as exc:
                text = (exc.strerror or "cannot be read").lower()
                raise Rejected(f"kubeconfig {path}: {text}", field="kubeconfig") from exc
            if not isinstance(content, dict):
                text = "is no kubeconfig" if content else "is empty"
                raise Rejected(f"kubeconfig {path}: {text}", field="kubeconfig")
        return kube_config.KubeConfigMerger(self._path)

    def _user(self, config: Any) -> tuple[dict[str, Any], Path]:  # noqa: ANN401 - untyped library
        """Return the user section in use and the directory that its relative paths start from."""
        name = self._context or config["current-context"]
        context = config["contexts"].get_with_name(name)["context"]
        user_name = context.safe_get("user")
        node = config["users"].get_with_name(user_name, safe=True) if user_name else None
        if node is None:
            raise ConfigException(f"context {name!r} names no user of this file")
        base = Path(node.path).parent.absolute() if node.path else Path.cwd()
        section: dict[str, Any] = node["user"].value if node.value.get("user") else {}
        return section, base

    def _reload_at(
        self, loader: kube_config.KubeConfigLoader, user: Mapping[str, Any]
    ) -> float | None:
        now = self._clock.now()
        if "auth-provider" in user:
            return now + _PROVIDER_RECHECK_S
        expiry = getattr(loader, "exec_plugin_expiry", None)
        if expiry is None:
            return None
        life_s = float(expiry.timestamp()) - now
        early_s = min(_EARLY_S, life_s * _EARLY_SHARE)
        return now + max(life_s - early_s, _LEAST_LIFE_S)


class InClusterSource:
    """The service account of the pod that we run in; its token file rotates."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        token_file: str = SERVICE_TOKEN_FILENAME,
        ca_file: str = SERVICE_CERT_FILENAME,
    ) -> None:
        self._environ = environ
        self._token_file = token_file
        self._ca_file = ca_file

    @staticmethod
    def is_offered(environ: Mapping[str, str]) -> bool:
        """Tell whether Kubernetes set the address of its API server for this process."""
        return bool(environ.get(SERVICE_HOST_ENV_NAME))

    async def load(self) -> Loaded:
        """Read the mounted files. Raises Rejected when one is missing or empty."""
        configuration = Configuration()
        loader = InClusterConfigLoader(
            token_filename=self._token_file,
            cert_filename=self._ca_file,
            try_refresh_token=False,
            environ=dict(self._environ),
        )
        try:
            loader.load_and_set(configuration)
        except (ConfigException, OSError) as exc:
            raise Rejected(f"the pod's service account cannot be used: {exc}") from exc
        return Loaded(
            configuration=configuration,
            authorization=_clean(configuration),
            files=(Path(self._token_file), Path(self._ca_file)),
        )


def _prepare(user: dict[str, Any], base: Path) -> None:
    """Repair a user section in place where the library reads it differently from Go's client."""
    if user.get("tokenFile"):
        user.pop("token", None)
    command = (user.get("exec") or {}).get("command")
    if command and os.sep in command and not Path(command).is_absolute():
        user["exec"]["command"] = str(base / command)


def _watched(user: Mapping[str, Any], base: Path) -> tuple[Path, ...]:
    names = ("tokenFile", "client-certificate", "client-key")
    return tuple(base / user[name] for name in names if user.get(name))


def _clean(configuration: Configuration) -> str | None:
    """Return the Authorization header without the newline that a token file ends with."""
    value = configuration.api_key.get("BearerToken")
    if value is None:
        return None
    clean = " ".join(str(value).split())
    configuration.api_key["BearerToken"] = clean
    return clean


def _plugin_missing(path: str, user: Mapping[str, Any], exc: OSError) -> str:
    section = user.get("exec") or {}
    hint = _one_line(section.get("installHint") or "")
    text = f"kubeconfig {path}: {section.get('command', 'file')}: {exc.strerror}"
    return f"{text} ({hint})" if hint else text


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
