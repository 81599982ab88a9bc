"""The question of a what-if of `visibility.pumice.dev`: a change to imagine.

The answer is a type of `visibility`. The question stands apart, for it may hold a Job, a Queue and
nodes: a command that reads answers alone need not load the types of all these.
"""

from typing import Annotated

from msgspec import Meta, field

from shared.api.base import CrResourceList, View, doc
from shared.api.batch import Job
from shared.api.core import Node
from shared.api.meta import ObjectMeta
from shared.api.scheduling import Queue
from shared.api.visibility import WhatIfStatus


class AddedNodes(View, frozen=True, kw_only=True):
    """Nodes to imagine: like one that is there, or of a form of their own."""

    count: Annotated[int, doc("How many, 1 at least.")] = 1
    like: Annotated[str, doc("Name of a node that is there.")] = ""
    template: Node | None = None


class QueueChange(View, frozen=True, kw_only=True):
    """A change of an existing queue; amounts that are not named stay unchanged."""

    name: Annotated[str, doc("Name of the queue.")]
    weight: (
        Annotated[int, Meta(ge=1, le=65535), doc("Share of the cluster, relative to siblings.")]
        | None
    ) = None
    capability: Annotated[CrResourceList, doc("Resources that it can never exceed.")] = field(
        default_factory=dict
    )
    deserved: Annotated[
        CrResourceList, doc("Resources beyond which others may reclaim what it uses.")
    ] = field(default_factory=dict)
    guarantee: Annotated[CrResourceList, doc("Resources that only this queue may use.")] = field(
        default_factory=dict
    )


class Defragmentation(View, frozen=True, kw_only=True):
    """Moves of pods to other nodes, so that waiting jobs start."""

    max_moves: Annotated[int, doc("Most pods that move, 1 to 500.")] = 20
    max_cost: Annotated[
        float | None, doc("Largest sum of the eviction costs of these pods; empty: any.")
    ] = None


class WhatIfSpec(View, frozen=True, kw_only=True):
    """A change to imagine: a job, another queue, nodes that come or go."""

    job: Job | None = None
    queue: Annotated[Queue, doc("A queue as it would be, with all that it states.")] | None = None
    change_queue: (
        Annotated[QueueChange, doc("A queue that is there, with some of it changed.")] | None
    ) = None
    add_nodes: Annotated[tuple[AddedNodes, ...], doc("Nodes that come.")] = ()
    drain_nodes: Annotated[tuple[str, ...], doc("Names of nodes that go.")] = ()
    shapes: Annotated[
        tuple[Node, ...], doc("Nodes of which the job gets as many as it needs to start, by name.")
    ] = ()

    defragment: Annotated[Defragmentation | None, doc("Pods move so that waiting jobs start.")] = (
        None
    )

    @property
    def changes_cluster(self) -> bool:
        """Return whether queues, nodes or places of pods are other ones than there are."""
        queues = self.queue is not None or self.change_queue is not None
        nodes = self.add_nodes or self.drain_nodes or self.shapes
        return bool(queues or nodes or self.defragment is not None)


class WhatIf(View, frozen=True, kw_only=True):
    """A question (`spec`) and its answer (`status`); create only, like a SubjectAccessReview."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Annotated[WhatIfSpec, doc("The question.")]
    status: Annotated[WhatIfStatus | None, doc("The answer.")] = None
