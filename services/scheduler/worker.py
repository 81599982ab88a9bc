"""The worker: the one owner of the replica, used from one thread at a time.

It folds what the loop has gathered and decides; both are synchronous and may take long, so the
loop calls them in a thread (ADR 6). Nothing else touches the replica, which therefore needs no
lock.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from services.scheduler import messages
from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import Stopwatch, decide, untimed
from services.scheduler.engine.beliefs import Beliefs, beliefs_of, believe, lay_out
from services.scheduler.engine.lapses import Lapses, Vigil
from services.scheduler.engine.plan import Plan
from services.scheduler.engine.replica import BadFact, Replica
from services.scheduler.engine.sharding import UNSHARDED, Sharding
from services.scheduler.engine.usage import Usage
from services.scheduler.noticing import Noticed, Noticing, Placement, placements
from services.scheduler.pacing import Pacing
from services.scheduler.policy.actions.enqueue import inqueue_timeout_s
from services.scheduler.policy.catalog import PLUGINS, Plugins
from shared.api.kinds import KINDS, POD
from shared.contracts import messages as m


class Trouble(msgspec.Struct, frozen=True):
    """One fact that scheduling could not use, and why."""

    kind: str
    key: str
    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and the messages that say it."""

    plan: Plan
    """What is worth a write now."""
    whole: Plan
    """Everything that was decided, statuses that are held back included."""
    commands: list[m.Command]
    desires: list[tuple[str, m.Desired]]
    lapsed: Sequence[str] = ()
    """Keys of PodGroups that no longer reserve anything, because their pods did not come."""
    noticed: Noticed = Noticed()
    placements: Sequence[Placement] = ()


class Worker:
    """Holds the replica and what is needed to rebuild its assumptions."""

    def __init__(
        self,
        *,
        scheduler_names: Sequence[str],
        seed: int,
        gang_message: int,
        settle_s: float,
        plugins: Plugins = PLUGINS,
        sharding: Sharding = UNSHARDED,
        measured: Callable[[], Mapping[str, Usage] | None] = lambda: None,
        ended: Stopwatch = untimed,
    ) -> None:
        self._plugins = plugins
        self._sharding = sharding
        self._measured = measured
        self._ended = ended
        self._noticing = Noticing()
        self._config: SchedulerConfig | None = None
        self._names: Final = tuple(scheduler_names)
        self._seed = seed
        self._gang_message = gang_message
        self._pacing = Pacing(settle_s)
        self._lapses = Lapses()
        self._unsaid: set[str] = set()
        self._replica = Replica(self._names)
        self._decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
            kind: msgspec.json.Decoder(KINDS[kind].type) for kind in sorted(self._replica.kinds)
        }

    @property
    def kinds(self) -> frozenset[str]:
        """Return the tokens of the kinds that scheduling reads."""
        return self._replica.kinds

    @property
    def assumed(self) -> int:
        """Return how many pods are assumed to be bound or leaving."""
        return self._replica.assumed

    def forget(self) -> None:
        """Start from nothing: STATE is about to be replayed."""
        self._noticing.disturb()
        self._replica = Replica(self._names)

    def fold(self, facts: Sequence[m.Fact]) -> list[Trouble]:
        """Fold facts in, in order; return those that cannot be scheduled by.

        What a source has measured of nodes since the last time comes in as well.
        """
        if (samples := self._measured()) is not None:
            self._replica.usage.replace(samples)
        troubles = []
        if facts:
            self._noticing.disturb()
        for fact in facts:
            try:
                self._fold(fact)
            except (BadFact, msgspec.DecodeError) as error:
                troubles.append(Trouble(fact.kind, fact.key, str(error)))
        return troubles

    def _fold(self, fact: m.Fact) -> None:
        decoder = self._decoders.get(fact.kind)
        if decoder is None:
            return
        if fact.op is m.Op.PUT:
            try:
                obj = decoder.decode(fact.body)
            except msgspec.DecodeError:
                self._replica.apply(fact.kind, "delete", fact.key, fact.uid, None)
                raise
            known = fact.kind != POD.token or self._replica.task(fact.uid) is not None
            self._replica.apply(fact.kind, "put", fact.key, fact.uid, obj)
            if not known and (task := self._replica.task(fact.uid)) is not None:
                self._noticing.new_pod(task)
            return
        self._replica.apply(fact.kind, "delete", fact.key, fact.uid, None)
        if fact.op is m.Op.OVERSIZED:
            raise BadFact(f"{fact.kind} {fact.key} is too large to be published; it is left out")

    def outcomes(self, outcomes: Sequence[m.Outcome]) -> None:
        """Take the ends of commands in: what failed is no longer assumed."""
        if outcomes:
            self._noticing.disturb()
        for outcome in outcomes:
            self._replica.outcome(
                outcome.intent, [(item.uid, item.result.value) for item in outcome.items]
            )
            for item in outcome.items:
                task = self._replica.task(item.uid) if item.result is m.Result.BOUND else None
                if task is not None:
                    self._noticing.bound(task, outcome.time)

    def recover(self, unfinished: Sequence[m.Command], recent: Sequence[m.Outcome]) -> int:
        """Rebuild the assumptions of whoever led before; return how many pods are assumed.

        `unfinished` is what COMMAND still holds, read before `recent`, the outcomes of the last
        minutes in order. A pod that was bound according to its outcome counts on its node even if
        STATE does not show it yet. What this process assumed on its own and the bus does not hold
        was never stored.
        """
        self._noticing.begin()
        self._replica.drop_assumptions()
        for command in unfinished:
            self._assume(command)
        for outcome in recent:
            self._take_again(outcome)
        return self._replica.assumed

    def _take_again(self, outcome: m.Outcome) -> None:
        for item in outcome.items:
            if item.result is m.Result.BOUND and item.node:
                self._replica.assume(outcome.intent, [(item.pod, item.uid, item.node)])
            elif item.result is m.Result.EVICTED:
                self._replica.assume_evictions(outcome.intent, [(item.pod, item.uid)])
            else:
                self._replica.outcome(outcome.intent, [(item.uid, item.result.value)])

    def decide(self, config: SchedulerConfig, *, now: float, cycle: int, token: int) -> Decision:
        """Run one cycle; its intents count as assumed from here on."""
        timeout_s = inqueue_timeout_s(config.arguments.get("enqueue", {}))
        lapsed = self._lapses.review(self._replica.jobs, now=now, timeout_s=timeout_s)
        if config is not self._config:
            self._config = config
            self._noticing.disturb()
        whole = decide(
            self._replica,
            config,
            now=now,
            seed=self._seed,
            cycle=cycle,
            plugins=self._plugins,
            sharding=self._sharding,
            ended=self._ended,
            look=self._noticing.look,
        )
        plan = self._pacing.due(whole, now=now, shown=self._shown_phase)
        self._unsaid = {group.key for group in whole.podgroups} - {g.key for g in plan.podgroups}
        wanted = messages.commands(plan, token=token, gang_message=self._gang_message)
        for command in wanted:
            self._assume(command)
        return Decision(
            plan=plan,
            whole=whole,
            commands=wanted,
            desires=messages.desires(plan),
            lapsed=lapsed,
            noticed=self._noticing.noticed,
            placements=list(placements(plan, self._replica, now=now)),
        )

    def _shown_phase(self, key: str) -> str:
        job = self._replica.jobs.get(key)
        return job.said.phase if job is not None else ""

    def _assume(self, command: m.Command) -> None:
        self._noticing.disturb()
        if isinstance(command, m.BindGang):
            self._replica.assume(command.id, [(b.pod, b.uid, b.node) for b in command.binds])
        else:
            self._replica.assume_evictions(command.id, [(v.pod, v.uid) for v in command.victims])
            if command.preemptor is not None:
                taker = command.preemptor
                self._replica.assume_nomination(command.id, taker.uid, taker.node)

    def withdraw(self, commands: Sequence[m.Command]) -> None:
        """Undo the assumptions of intents that the server refused to store."""
        self._noticing.disturb()
        for command in commands:
            if isinstance(command, m.BindGang):
                uids = [bind.uid for bind in command.binds]
            else:
                uids = [victim.uid for victim in command.victims]
            self._replica.outcome(command.id, [(uid, "failed") for uid in uids])

    def adopt(self, plan: Plan) -> None:
        """Go by the statuses of a published plan until the objects show them."""
        self._noticing.disturb()
        self._replica.adopt(plan, unsaid=sorted(self._unsaid))

    # --- recorded cycles ----------------------------------------------------------------------

    def beliefs(self) -> tuple[Beliefs, dict[str, Vigil]]:
        """Return everything that the next decision depends on and no fact says."""
        return beliefs_of(self._replica), self._lapses.vigils

    def lay_out(self, beliefs: Beliefs) -> None:
        """Prepare for the facts of a recorded cycle; nothing has been folded yet."""
        lay_out(self._replica, beliefs)

    def believe(self, beliefs: Beliefs, vigils: dict[str, Vigil]) -> None:
        """Take over what a recorded cycle went by, after its facts."""
        believe(self._replica, beliefs)
        self._lapses.restore(vigils)

    def audit(self) -> list[str]:
        """Derive node usage from the pods again; return what had drifted (repaired)."""
        return [str(drift) for drift in self._replica.audit()]
