"""Tokens of the old `auth-provider` sections (oidc, gcp), which kubernetes-asyncio renews.

Kubernetes has left them for plugins, and so few kubeconfigs have one that the library, whose import
takes as long as all else at a service's start, is imported only for these.
"""

from typing import Any


async def authorization(path: str, context: str | None) -> str | None:
    """Return the Authorization header's value, renewed and written back if it was due.

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
