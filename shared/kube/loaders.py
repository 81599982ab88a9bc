"""kubernetes-asyncio's loaders of credentials, imported without the models of its client.

Each import of `kubernetes_asyncio` runs the package's `__init__`, which imports some 800 models:
0.3 s of CPU and 54 MB. The loaders need none of them: with stand-ins for these modules in
`sys.modules` while they are imported, they take 0.02 s and 2.3 MB. What was imported is kept here
and taken out of `sys.modules`, so that a plugin that imports the package gets all of it.
"""

import importlib
import importlib.util
import ssl
import sys
from types import ModuleType
from typing import Any, Final

_PACKAGE: Final = "kubernetes_asyncio"
_OPENID: Final = f"{_PACKAGE}.config.openid"
_imported: dict[str, ModuleType] = {}
"""The modules by name, stand-ins included."""


def kube_config() -> ModuleType:
    """Return the module that loads kubeconfigs."""
    return _module(f"{_PACKAGE}.config.kube_config")


def incluster_config() -> ModuleType:
    """Return the module that loads the service account of a pod."""
    return _module(f"{_PACKAGE}.config.incluster_config")


def _module(name: str) -> ModuleType:
    """Return a module of the package, imported the first time."""
    found = _imported.get(name)
    if found is not None:
        return found
    others = _taken_out()
    sys.modules.update(_imported)
    try:
        if not _imported:
            _put_stand_ins()
        return importlib.import_module(name)
    finally:
        _imported.update(_taken_out())
        sys.modules.update(others)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
    return {name: sys.modules.pop(name) for name in names}


def _put_stand_ins() -> None:
    """Put in place: packages that have not run, types for annotations, and a late import."""
    for package in (_PACKAGE, f"{_PACKAGE}.config"):
        spec = importlib.util.find_spec(package)
        assert spec is not None, package
        sys.modules[package] = importlib.util.module_from_spec(spec)
    client = ModuleType(f"{_PACKAGE}.client")
    client.__dict__.update(ApiClient=object, Configuration=object)
    openid = ModuleType(_OPENID)
    openid.__dict__.update(OpenIDRequestor=_open_id_requestor)
    sys.modules.update({client.__name__: client, _OPENID: openid})


def _open_id_requestor(*args: object) -> object:
    """Make what renews an OIDC token; its module imports aiohttp, which few kubeconfigs need."""
    if _imported[_OPENID].__spec__ is None:
        del _imported[_OPENID]
    import aiohttp

    requestor: Any = _module(_OPENID).OpenIDRequestor(*args)
    # The library does not check the provider's certificate, or fails where an authority is given.
    authority = requestor._ssl_ca_cert  # noqa: SLF001
    tls = ssl.create_default_context(cafile=authority)
    requestor._get_connector = lambda: aiohttp.TCPConnector(ssl=tls)  # noqa: SLF001
    return requestor
