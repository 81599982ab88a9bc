"""Which installation acts in the cluster: the one that holds the Lease (ADR 20).

The cache, which takes the Lease, writes the name of its installation on it. What an installation
registers with the API server (webhooks, an APIService) has one name in the cluster, so that only
the holder of the Lease may register: one that waits for it would replace what the holder has.
"""

from typing import Final, Protocol

import msgspec

from shared.kube import leases
from shared.kube.client import Kube
from shared.runtime.errors import Rejected, Retryable
from shared.runtime.logs import Logger

INSTALLATION: Final = "pumice.dev/installation"
"""Annotation of a Lease that Pumice holds: the name of the installation."""
HOLDER_PREFIX: Final = "pumice-"
"""How holders of Pumice are called; others are Volcano's."""


class InstallationLease:
    """The Lease, for those that only ask who holds it."""

    def __init__(self, kube: Kube, *, installation: str, lease: str) -> None:
        """Make it for a Lease `namespace/name`. Without a name of the installation none is asked.

        Raises Rejected when `lease` is no such name.
        """
        self._kube = kube
        self._installation = installation
        self._namespace, _, self._name = lease.partition("/")
        if installation and not (self._namespace and self._name):
            raise Rejected(
                f"--registration-lease: {lease!r} is not a NAMESPACE/NAME",
                field="registration-lease",
            )

    async def other_holder(self) -> str:
        """Return the holder when it is another installation, or Volcano; "" when it is not.

        A holder of Pumice without the annotation is of an earlier release, and counts as ours.
        Raises the errors of `Kube`.
        """
        if not self._installation:
            return ""
        try:
            found = await leases.find(self._kube, self._namespace, self._name)
        except msgspec.DecodeError as error:
            raise Retryable(f"Lease {self._namespace}/{self._name}: {error}") from error
        holder = (found.spec.holder_identity or "") if found is not None else ""
        if found is None or not holder:
            return ""
        name = found.metadata.annotations.get(INSTALLATION)
        is_ours = name == self._installation if name else holder.startswith(HOLDER_PREFIX)
        return "" if is_ours else holder


class Registration(Protocol):
    """Objects by which the API server finds a service."""

    async def ensure(self, bundle: str) -> None:
        """Bring the objects to what they shall be, with a bundle of authorities."""
        ...

    async def remove(self) -> None:
        """Delete the objects that lead to us."""
        ...


class HoldersRegistration:
    """A registration that is there for as long as no other installation holds the Lease."""

    def __init__(self, registration: Registration, lease: InstallationLease, log: Logger) -> None:
        self._registration = registration
        self._lease = lease
        self._log = log
        self._waits_for = ""

    async def ensure(self, bundle: str) -> None:
        """Register, or remove what leads to us if another installation holds the Lease."""
        other = await self._lease.other_holder()
        if other != self._waits_for:
            self._waits_for = other
            if other:
                self._log.info("registration_waits_for_the_lease", holder=other)
        if other:
            await self._registration.remove()
        else:
            await self._registration.ensure(bundle)

    async def remove(self) -> None:
        """Delete the objects that lead to us."""
        await self._registration.remove()
