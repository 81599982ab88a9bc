"""The data of all queries: the scheduler's cluster state, and objects for what-ifs.

Facts and outcomes fold into it as into the scheduler's; no decision is ever kept. The
engine keeps what rules read and not the objects, so that the few kinds of which a query changes
one (a node that is drained, a queue as it would be) are kept here as they came.

Used by one thread at a time, like `SchedulerState` (ADR 6).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from services.scheduler.config import SchedulerConfig
from services.scheduler.decision import FoldFailure
from services.scheduler.decision_settings import DEFAULTS, DecisionSettings
from services.scheduler.engine.jobs.records import Job
from services.scheduler.engine.jobs.reservation_timeouts import ReservationTimeouts
from services.scheduler.engine.nodes.attributes import NodeAttributes
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.actions.enqueue import inqueue_timeout_s
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.scheduler.policy.devices.selectors import Evaluator
from services.scheduler.policy.states.claims import Devices
from services.scheduler.scheduler_state import Measurements, SchedulerState
from shared.api.kinds import NAMESPACE, NODE, PRIORITYCLASS, QUEUE
from shared.contracts import messages as m
from shared.contracts.usage import QueueUsage

_KINDS: Final = (NODE, QUEUE, PRIORITYCLASS, NAMESPACE)
_GANG_MESSAGE: Final = 500


class LatestObjects:
    """The latest objects of some kinds, by key."""

    def __init__(self) -> None:
        self._bodies: dict[str, dict[str, bytes]] = {kind.token: {} for kind in _KINDS}
        self._decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
            kind.token: msgspec.json.Decoder(kind.type) for kind in _KINDS
        }

    def fold(self, fact: m.Fact) -> None:
        """Take a fact in; one of another kind is left alone."""
        bodies = self._bodies.get(fact.kind)
        if bodies is None:
            return
        if fact.op is m.Op.PUT:
            bodies[fact.key] = bytes(fact.body)
        else:
            bodies.pop(fact.key, None)

    def get(self, kind: str, key: str) -> Any:  # noqa: ANN401 - the type of the kind
        """Return an object, None when there is none that can be read."""
        body = self._bodies.get(kind, {}).get(key)
        if body is None:
            return None
        try:
            return self._decoders[kind].decode(body)
        except msgspec.DecodeError:
            return None

    def keys(self, kind: str) -> Iterable[str]:
        """Return the keys of a kind's objects."""
        return self._bodies[kind].keys()


class ClusterMirror:
    """A copy of the cluster: what the rules read, and objects that no rule reads."""

    def __init__(
        self,
        settings: DecisionSettings = DEFAULTS,
        *,
        plugins: Plugins = PLUGINS,
        evaluator: Evaluator | None = None,
        past_usage: Callable[[], Mapping[str, QueueUsage]] = dict,
    ) -> None:
        self.scheduler_names = settings.scheduler_names
        self._make: Callable[[], SchedulerState] = lambda: SchedulerState(
            settings,
            gang_message=_GANG_MESSAGE,
            settle_s=0.0,
            plugins=plugins,
            evaluator=evaluator,
            measured=Measurements(past_usage=past_usage),
        )
        self.epoch = self.version = -1
        self.forget()

    def forget(self) -> None:
        """Start from nothing: STATE is about to be replayed.

        `epoch` grows with each such beginning, `version` with each change.
        """
        self.epoch += 1
        self._scheduler_state = self._make()
        self._timeouts = ReservationTimeouts()
        self.kept = LatestObjects()
        self.version += 1

    @property
    def state(self) -> ClusterState:
        """The cluster state."""
        return self._scheduler_state.cluster_state

    @property
    def kinds(self) -> frozenset[str]:
        """Tokens of the kinds that are folded."""
        return self._scheduler_state.kinds

    @property
    def is_consistent(self) -> bool:
        """Whether the cluster state follows from its facts; if not, it is to be filled again."""
        return self._scheduler_state.is_consistent

    def fold(self, facts: Sequence[m.Fact]) -> list[FoldFailure]:
        """Fold facts in, in order; return those that cannot be scheduled by."""
        self.version += bool(facts)
        for fact in facts:
            self.kept.fold(fact)
        return self._scheduler_state.fold(facts)

    def outcomes(self, outcomes: Sequence[m.Outcome]) -> None:
        """Take the ends of commands in, so that a pod counts on its node before its object says so.

        The scheduler assumes a pod there from its intent on; intents are for binders alone.
        """
        self.version += bool(outcomes)
        self._scheduler_state.outcomes(outcomes)
        for outcome in outcomes:
            for item in outcome.items:
                if item.result is m.Result.BOUND and item.node and self.state.task(item.uid):
                    self.state.assume(outcome.intent, [item])

    def review(self, config: SchedulerConfig, *, now: float) -> None:
        """Heed what the time alone changes, as the scheduler does before a cycle."""
        self.state.review_refusals(now)
        timeout_s = inqueue_timeout_s(config.arguments.get("enqueue", {}))
        self._timeouts.review(self.state.jobs, now=now, timeout_s=timeout_s)

    def request_devices(self) -> None:
        """Request the evaluations of device expressions that decisions about pending pods need."""
        self.state.store(Devices).request_evaluations(self.state.store(NodeAttributes))

    def group_of(self, owner_job: str) -> Job | None:
        """Return the PodGroup that the Job of a key made last."""
        made = [job for job in self.state.jobs.all() if job.owner_job == owner_job]
        return max(made, key=lambda job: (job.created, job.key), default=None)

    def priorities(self) -> Mapping[str, int]:
        """Return the values of the priority classes."""
        found = ((name, self.kept.get(PRIORITYCLASS.token, name)) for name in self._classes())
        return {name: known.value for name, known in found if known is not None}

    def preemption_policies(self) -> Mapping[str, str]:
        """Return the preemption policies of the priority classes that state one."""
        found = ((name, self.kept.get(PRIORITYCLASS.token, name)) for name in self._classes())
        return {
            name: known.preemption_policy
            for name, known in found
            if known and known.preemption_policy
        }

    def default_priority(self) -> int:
        """Return the priority of pods that name no class."""
        known = (self.kept.get(PRIORITYCLASS.token, name) for name in self._classes())
        return max((each.value for each in known if each and each.global_default), default=0)

    def _classes(self) -> list[str]:
        return sorted(self.kept.keys(PRIORITYCLASS.token))
