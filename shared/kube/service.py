"""The API server as every service reaches it: its client, from what the settings say."""

from typing import Protocol

from shared.kube.client import Kube
from shared.kube.config import connect
from shared.runtime.service import Context
from shared.runtime.values import Seconds


class ApiSettings(Protocol):
    """The settings of a service about the API server."""

    @property
    def kubeconfig(self) -> str:
        """File; "" leaves it to the environment."""

    @property
    def master(self) -> str:
        """Address that goes before that of the kubeconfig; "" for none."""

    @property
    def kube_api_qps(self) -> float:
        """Most requests per second."""

    @property
    def kube_api_burst(self) -> int:
        """Requests that may go out at once."""

    @property
    def request_timeout(self) -> Seconds:
        """Time for one answer."""


async def kube_of(settings: ApiSettings, context: Context, *, max_connections: int = 100) -> Kube:
    """Return the client of a service; a watch holds one of its connections."""
    return await connect(
        settings.kubeconfig or None,
        master=settings.master,
        user_agent=f"pumice-{context.service}",
        qps=settings.kube_api_qps,
        burst=settings.kube_api_burst,
        max_connections=max_connections,
        request_timeout_s=settings.request_timeout,
        clock=context.clock,
    )
