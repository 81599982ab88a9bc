"""Messages that would stay on the streams for ever: only those about existing objects may.

A message that neither expires nor is replaced nor consumed stays for ever, and with one for each
job, pod or term of a leader the server grows until its disk is full. Checked at the end of a
simulation, on copies of the streams a week later, before the processes are killed.
"""

import copy
from collections.abc import Iterator

from pumice.embedded.memory_nats.server import MemoryNats
from pumice.embedded.memory_nats.stream import MemoryStream, StoredMessage
from shared.contracts import codec
from shared.contracts.messages import Op
from shared.contracts.streams import streams
from shared.contracts.subjects import Subjects
from tests.sim.cluster import Cluster

WEEK_S = 7 * 86400.0
_STREAMS = streams("local")
_SUBJECTS = Subjects(cluster="local")
_TIMELESS = {_SUBJECTS.marker, _SUBJECTS.leader("state"), _SUBJECTS.leader("command")}
"""One message each, whatever comes: the next one takes its place."""
_LEASES = _SUBJECTS.lease("")[:-1]
"""There are as many as there are kinds of work to share."""


def lasting(nats: MemoryNats, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield (subject, what is wrong) of messages that would stay though their object is gone."""
    for name, stream in nats.jetstream.streams.items():
        later = copy.deepcopy(stream)
        newest = max((stored.time for stored in later.messages()), default=0.0)
        later.expire(newest + WEEK_S + 1)
        yield from _lasting_on(name, later, cluster)


def _lasting_on(name: str, stream: MemoryStream, cluster: Cluster) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for stored in stream.messages():
        subject = stored.subject
        again = subject in seen
        seen.add(subject)
        if again:
            yield subject, f"{subject} is kept more than once on {name}"
        elif subject in _TIMELESS or subject.startswith(_LEASES):
            continue
        elif name != _STREAMS.state.name or not _is_about_existing(stored, cluster):
            yield subject, f"{subject} stays on {name} for ever"


def _is_about_existing(stored: StoredMessage, cluster: Cluster) -> bool:
    fact = codec.decode_fact(stored.payload)
    return fact.op is not Op.DELETE and cluster.has(fact.kind, fact.uid)
