"""Asks the API server whether it guards Commands to queues (see `services.controller.queue.trust`).

Asked again for each look with a Command from a namespace that is not trusted: such Commands are
rare, and a policy that was taken away must count at once.
"""

from collections.abc import Collection

from services.controller.queue.trust import (
    POLICY as NAME,
)
from services.controller.queue.trust import (
    guarded_since,
    in_trusted_namespace,
    made_at,
)
from shared.api.bus import Command
from shared.api.kinds import ADMISSION_POLICY, ADMISSION_POLICY_BINDING
from shared.kube.client import Kube
from shared.runtime.errors import Gone, Rejected


class Trust:
    """Judges Commands to queues by where they come from."""

    def __init__(self, kube: Kube, *, namespaces: Collection[str]) -> None:
        """`namespaces` are those whose Commands to queues are obeyed in any case."""
        self._kube = kube
        self._namespaces = frozenset(namespaces)

    async def doubt(self, command: Command) -> str:
        """Return why a Command is not obeyed, "" when it is. Raises Retryable."""
        if in_trusted_namespace(command, self._namespaces):
            return ""
        if made_at(command) >= await self._guarded_since():
            return ""
        trusted = ", ".join(sorted(self._namespaces)) or "none"
        return (
            f"queues belong to no namespace, and the API server was not asked whether the maker of"
            f" this Command may update one (ValidatingAdmissionPolicy {NAME}, or"
            f" --queue-commands-from, now: {trusted})"
        )

    async def _guarded_since(self) -> float:
        try:
            policy = await self._kube.get(ADMISSION_POLICY, "", NAME)
            binding = await self._kube.get(ADMISSION_POLICY_BINDING, "", NAME)
        except (Gone, Rejected):  # not there, not served, or not for us to see
            return float("inf")
        return guarded_since(policy, binding)
