"""Settings of the declarer."""

from typing import Annotated, Literal

from msgspec import Meta

from shared.contracts.streams import MIB
from shared.runtime.common import CommonSettings


class DeclarerSettings(CommonSettings, frozen=True, kw_only=True):
    """Settings of one declarer process."""

    state_storage: Annotated[
        Literal["memory", "file"],
        Meta(description="storage of the STATE stream; it can be rebuilt at any time"),
    ] = "memory"
    state_bytes: Annotated[
        int, Meta(description="maximum size of the STATE stream in bytes", ge=MIB)
    ] = 2048 * MIB
    event_namespaces: Annotated[
        tuple[str, ...],
        Meta(description="namespaces with an event stream and user of their own"),
    ] = ()
    stream_replicas: Annotated[
        int,
        Meta(
            description="replicas of each stream: 3 on a NATS cluster of three",
            ge=1,
            le=5,
        ),
    ] = 1
    state_replicas: Annotated[
        int,
        Meta(
            description="replicas of STATE; 0: as for the other streams",
            ge=0,
            le=5,
        ),
    ] = 0
