"""The worker: the one owner of the replica, used from one thread at a time.

It folds what the loop has gathered and decides; both are synchronous and may take long, so the
loop calls them in a thread (ADR 6). Nothing else touches the replica, which therefore needs no
lock.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from services.scheduler import messages
from services.scheduler.config import SchedulerConfig
from services.scheduler.decide import Stopwatch, decide, untimed
from services.scheduler.engine.asides import Aside
from services.scheduler.engine.beliefs import Beliefs, beliefs_of, believe, lay_out
from services.scheduler.engine.journal import BrokenOff
from services.scheduler.engine.lapses import Lapses, Vigil
from services.scheduler.engine.plan import Explanation, Plan
from services.scheduler.engine.replica import BadFact, Replica
from services.scheduler.engine.sharding import UNSHARDED, Sharding
from services.scheduler.engine.usage import Usage
from services.scheduler.noticing import Noticed, Noticing, Placement, placements
from services.scheduler.pacing import PATIENCE, Pacing
from services.scheduler.policy.actions.enqueue import inqueue_timeout_s
from services.scheduler.policy.catalog import PLUGINS, Plugins
from services.scheduler.reminding import Reminders, Wish, stands
from services.scheduler.telling import Owners
from services.scheduler.waiting import Making, Waits
from shared.api.kinds import KINDS, POD, PODGROUP
from shared.contracts import messages as m


class Trouble(msgspec.Struct, frozen=True):
    """One fact that scheduling could not use, and why."""

    kind: str
    key: str
    uid: str
    reason: Exception | str
    """The error itself where it is one of ours."""


class Refused(NamedTuple):
    """An intent that was not stored; `why` is empty if the same may be stored later."""

    command: m.Command
    why: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and the messages that say it."""

    plan: Plan
    """What is worth a write now."""
    whole: Plan
    """Everything that was decided, statuses that are held back included."""
    commands: list[m.Command]
    wishes: list[Wish]
    """Statuses to publish: those of the plan, and earlier ones that nothing has come of."""
    waits: Sequence[Explanation] = ()
    """Waits that have lasted, and that nobody was told of yet."""
    lapsed: Sequence[str] = ()
    """Keys of PodGroups that no longer reserve anything, because their pods did not come."""
    asides: Sequence[Aside] = ()
    """Jobs, queues and actions that met an error of ours."""
    noticed: Noticed = Noticed()
    placements: Sequence[Placement] = ()

    @property
    def says_nothing(self) -> bool:
        """Return whether there is nothing to publish."""
        return self.plan.is_empty and not self.wishes


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
        self._making = Making(PATIENCE * settle_s)
        self._waits = Waits(settle_s)
        self._lapses = Lapses()
        self._reminders = Reminders()
        self._unsaid: set[str] = set()
        self._replica = Replica(self._names)
        self._left_out: dict[tuple[str, str], tuple[bytes, Exception]] = {}
        """Objects that met an error of ours, by kind and key: what content, and the error."""
        self._without: set[str] = set()
        """Jobs that spoilt a session: each time costs everybody a cycle and all facts read again,
        so that they have no turn any more until their PodGroup is gone."""
        self._owners = Owners()
        self._decoders: Final[dict[str, msgspec.json.Decoder[Any]]] = {
            kind: msgspec.json.Decoder(KINDS[kind].type) for kind in sorted(self._replica.kinds)
        }

    @property
    def kinds(self) -> frozenset[str]:
        """Return the tokens of the kinds that scheduling reads."""
        return self._replica.kinds

    @property
    def is_whole(self) -> bool:
        """Return whether the replica is what its facts say; if not, it has to be filled anew."""
        return self._replica.is_whole

    @property
    def assumed(self) -> int:
        """Return how many pods are assumed to be bound or leaving."""
        return self._replica.assumed

    def forget(self) -> None:
        """Start from nothing: STATE is about to be replayed."""
        self._noticing.disturb()
        self._reminders.forget()
        self._replica = Replica(self._names)

    def fold(self, facts: Sequence[m.Fact]) -> list[Trouble]:
        """Fold facts in, in order; return those that cannot be scheduled by.

        What a source has measured of nodes since the last time comes in as well.
        """
        if (samples := self._measured()) is not None:
            self._replica.usage.replace(samples)
        troubles: dict[tuple[str, str], Trouble] = {}
        if facts:
            self._noticing.disturb()
        for fact in facts:
            if troubles:
                troubles.pop((fact.kind, fact.key), None)  # the last fact of an object counts
            if (trouble := self._try_to_fold(fact)) is not None:
                troubles[fact.kind, fact.key] = trouble
        for trouble in troubles.values():
            self._owners.tell(trouble.kind, trouble.key, trouble.uid, trouble.reason)
        return list(troubles.values())

    def _try_to_fold(self, fact: m.Fact) -> Trouble | None:
        """Fold a fact, or leave its object out; return why.

        What failed with an error of ours is not tried again with the same content: if it failed
        half-way, the replica is not whole and is filled anew, without it.
        """
        if self._left_out:
            at = (fact.kind, fact.key)
            known = self._left_out.pop(at, None)
            if known is not None and fact.op is m.Op.PUT and known[0] == _digest(fact):
                self._left_out[at] = known
                return Trouble(fact.kind, fact.key, fact.uid, known[1])
        try:
            self._fold(fact)
        except (BadFact, msgspec.DecodeError) as error:
            return Trouble(fact.kind, fact.key, fact.uid, str(error))
        except Exception as error:  # noqa: BLE001 - an error of ours about one object (ADR 19)
            self._left_out[fact.kind, fact.key] = (_digest(fact), error)
            self._remove(fact)
            return Trouble(fact.kind, fact.key, fact.uid, error)
        return None

    def _remove(self, fact: m.Fact) -> None:
        try:
            self._replica.apply(fact.kind, "delete", fact.key, fact.uid, None)
        except Exception:  # noqa: BLE001 - the replica is filled anew
            self._replica.spoil()

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
        if fact.kind == PODGROUP.token:
            self._without.discard(fact.key)
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
            self._note_refusals(outcome)
            for item in outcome.items:
                task = self._replica.task(item.uid) if item.result is m.Result.BOUND else None
                if task is not None:
                    self._noticing.bound(task, outcome.time)

    def _note_refusals(self, outcome: m.Outcome) -> None:
        """Remember what the binder could not do; all else it says is gone by at once."""
        refusals = self._replica.refusals
        for item in outcome.items:
            if item.result is m.Result.FAILED:
                is_bind = bool(outcome.job)
                refusals.note(item.uid, outcome.intent, item.message, is_bind=is_bind)
            elif len(refusals):
                refusals.drop(item.uid)

    def recover(self, unfinished: Sequence[m.Command], recent: Sequence[m.Outcome]) -> int:
        """Rebuild the assumptions of whoever led before; return how many pods are assumed.

        `unfinished` is what COMMAND still holds, read before `recent`, the outcomes of the last
        minutes in order. A pod that was bound according to its outcome counts on its node even if
        STATE does not show it yet. What this process assumed on its own and the bus does not hold
        was never stored; the statuses that it wanted when it led before are another's since.
        """
        self._noticing.begin()
        self._reminders.forget()
        self._waits.forget()
        self._replica.forget_wishes()
        self._replica.drop_assumptions()
        self._replica.refusals.clear()
        for command in unfinished:
            self._assume(command)
        for outcome in recent:
            self._take_again(outcome)
        return self._replica.assumed

    def _take_again(self, outcome: m.Outcome) -> None:
        self._note_refusals(outcome)
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
        self._replica.review_refusals(now)
        lapsed = self._lapses.review(self._replica.jobs, now=now, timeout_s=timeout_s)
        if config is not self._config:
            self._config = config
            self._noticing.disturb()
        whole = self._plan(config, now=now, cycle=cycle)
        due = self._pacing.due(
            whole,
            now=now,
            shown=self._shown_phase,
            making=self._being_made(whole, now),
            group_of=self._group_of,
        )
        plan = self._owners.added(due)
        self._unsaid = {group.key for group in whole.podgroups} - {g.key for g in plan.podgroups}
        wanted = messages.commands(plan, token=token, gang_message=self._gang_message)
        for command in wanted:
            self._assume(command)
        return Decision(
            plan=plan,
            whole=whole,
            commands=wanted,
            wishes=self._wishes(plan, now),
            waits=self._waits.lasting(whole.explanations, self._replica.jobs, now=now),
            lapsed=lapsed,
            asides=self._noticing.asides,
            noticed=self._noticing.noticed,
            placements=list(placements(plan, self._replica, now=now)),
        )

    def _wishes(self, plan: Plan, now: float) -> list[Wish]:
        fresh = [Wish(kind=k, wanted=w) for k, w in messages.desires(plan, self._replica)]
        self._reminders.told(fresh, now=now)
        return fresh + self._reminders.due(now=now, stands=lambda wish: stands(wish, self._replica))

    def _being_made(self, plan: Plan, now: float) -> frozenset[str]:
        """Return the PodGroups that the plan has a status for while their pods are made."""
        keys = dict.fromkeys(group.key for group in plan.podgroups)
        keys |= dict.fromkeys(self._group_of(pod.uid) for pod in plan.pods)
        return self._making.review(keys, self._replica.jobs, now=now)

    def _group_of(self, uid: str) -> str:
        task = self._replica.task(uid)
        return task.job_key if task is not None else ""

    def _plan(self, config: SchedulerConfig, *, now: float, cycle: int) -> Plan:
        try:
            return decide(
                self._replica,
                config,
                now=now,
                seed=self._seed,
                cycle=cycle,
                plugins=self._plugins,
                sharding=self._sharding,
                ended=self._ended,
                look=self._noticing.look,
                without=self._without,
            )
        except BrokenOff as error:
            self._replica.spoil()
            self._without.add(error.job)
            raise

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

    def withdraw(self, refused: Sequence[Refused]) -> None:
        """Undo the assumptions of intents that the server refused to store.

        Pods of one that can never be stored are held back as if their binds had been refused.
        """
        self._noticing.disturb()
        for command, why in refused:
            is_bind = isinstance(command, m.BindGang)
            items = command.binds if isinstance(command, m.BindGang) else command.victims
            self._replica.outcome(command.id, [(item.uid, "failed") for item in items])
            for item in items if why else ():
                self._replica.refusals.note(item.uid, command.id, why, is_bind=is_bind, by="NATS")

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


def _digest(fact: m.Fact) -> bytes:
    return hashlib.blake2b(bytes(fact.body), digest_size=16).digest()
