"""Tells the variables that Kubernetes makes for each Service of a namespace from settings.

A Service named `pumice-admission` puts PUMICE_ADMISSION_PORT=tcp://10.0.0.1:443 and seven more
variables into every pod of its namespace ("service links"), where our settings have such names.
`shared.runtime.settings` takes none of them, `shared.runtime.service` logs which there were. The
manifests turn links off as well; another manifest may not.
"""

import re
from collections.abc import Mapping
from typing import Final

_PREFIX: Final = "PUMICE_"
_HOST: Final = "_SERVICE_HOST"
_URL: Final = re.compile(r"(tcp|udp|sctp)://")
_URL_NAME: Final = re.compile(r"_PORT(_\d+_(TCP|UDP|SCTP))?$")
_PART_NAME: Final = re.compile(r"_PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$")
_PORT_NAME: Final = re.compile(r"(?P<service>.+)_SERVICE_PORT(_.+)?$")


def service_links(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of our prefix that Kubernetes made, sorted."""
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if name.startswith(_PREFIX) and _is_link(name, value, environ)
        )
    )


def _is_link(name: str, value: str, environ: Mapping[str, str]) -> bool:
    if name.endswith(_HOST) or _PART_NAME.search(name):
        return True
    if _URL_NAME.search(name) and _URL.match(value):
        return True
    port = _PORT_NAME.match(name)
    # A port alone may be a setting (PUMICE_ADMISSION_WEBHOOK_SERVICE_PORT): a link has a host.
    return port is not None and f"{port['service']}{_HOST}" in environ
