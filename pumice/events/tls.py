"""A NATS client that sends nothing in the clear once TLS was requested.

nats-py turns TLS on when the server says that it needs it. To a program that stands in for the
server and does not say so, it would send its password as it is.
"""

import ssl
from typing import Any

from nats.aio.client import Client
from nats.errors import Error
from typing_extensions import override


def trusting(ca: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the authority in a file. Raises OSError.

    Python 3.13's strict X.509 checks are off, as towards the API server: a NATS server's authority
    need not have the extensions that it requests.
    """
    context = ssl.create_default_context(cafile=ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class TlsClient(Client):
    """Ends a connection to a server without TLS, if given a TLS context or a URL `tls://`."""

    @override
    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        uses_tls = "tls" in self.options or (server is not None and server.uri.scheme == "tls")
        if initial_connection and uses_tls and not info.get("tls_required"):
            raise Error("the server offers no TLS")
        await super()._process_info(info, initial_connection)
