"""Settings of the declarer."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.contracts.streams import MIB
from shared.runtime.common import CommonSettings


class DeclarerSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one declarer process."""

    state_storage: Annotated[
        Literal["memory", "file"],
        Meta(description="where the STATE stream lives; it can be built again at any time"),
    ] = "memory"
    state_bytes: Annotated[int, Meta(description="bound of the STATE stream in bytes", ge=MIB)] = (
        2048 * MIB
    )
    event_namespaces: Annotated[
        tuple[str, ...],
        Meta(description="namespaces whose events have subscribers of their own"),
    ] = ()
    stream_replicas: Annotated[
        int,
        Meta(
            description="servers that hold a copy of each stream: 3 on a NATS cluster of three",
            ge=1,
            le=5,
        ),
    ] = 1
    state_replicas: Annotated[
        int,
        Meta(
            description="servers that hold a copy of STATE; 0: as many as of the other streams",
            ge=0,
            le=5,
        ),
    ] = 0
