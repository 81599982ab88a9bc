"""A machine of scheduler, binder and cache in slow motion: no pod twice, no node beyond its room.

The truth is what the API server holds. The binder carries intents out when it likes, outcomes and
facts arrive late, pods come and go, and the scheduler starts anew from what the streams hold.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pumice.testing import Cluster
from services.scheduler.engine.state.cluster_state import ClusterState
from services.scheduler.policy.catalog import STATES
from shared.api import kinds
from shared.contracts.messages import Result

ROOM = {"n0": 1000, "n1": 1000}
SIZE = 1000


class World(RuleBasedStateMachine):
    """Truth, streams in between, and the scheduler's cluster state."""

    @initialize()
    def begin(self):
        self.scheduler = Cluster()
        self.truth = {}  # pod name → (uid, node)
        self.bound = {}  # uid → node, for ever
        self.command = {}  # intent → binds
        self.outcomes = []  # not yet delivered
        self.outcome_stream = []  # all of them, as the stream keeps them
        self.changes = []  # facts of the cache, not yet delivered
        self.state = {}  # last fact per pod, as the stream keeps it
        self.made = 0
        self.tell_the_fixed_facts()

    def tell_the_fixed_facts(self):
        for name, cpu in ROOM.items():
            self.scheduler.node(name, cpu=f"{cpu}m")
        for number in range(3):
            self.scheduler.group(f"g{number}", min_member=1)

    # --- what users do -----------------------------------------------------------------------

    @rule(group=st.integers(0, 2), index=st.integers(0, 1))
    def create(self, group, index):
        name = f"g{group}-{index}"
        if name not in self.truth:
            self.made += 1
            self.truth[name] = (f"uid-{self.made}", "")
            self.changes.append((name, self.truth[name]))
            self.hear_of(name)  # the lag that matters is that of what the binder does

    def hear_of(self, name):
        told = [change for change in self.changes if change[0] == name]
        self.changes = [change for change in self.changes if change[0] != name]
        for _, fact in told:
            self.state[name] = fact
            self.fold(name, fact)

    @rule(data=st.data())
    @precondition(lambda self: self.truth)
    def delete(self, data):
        name = data.draw(st.sampled_from(sorted(self.truth)))
        uid, _ = self.truth.pop(name)
        self.changes.append((name, (uid, None)))

    # --- what the services do ----------------------------------------------------------------

    @rule(seed=st.integers(0, 1))
    def cycle(self, seed):
        plan = self.scheduler.decide(seed=seed)
        for number, gang in enumerate(plan.binds):
            intent = f"{id(self.scheduler)}-{plan.cycle}-{number}"
            self.command[intent] = gang.binds
            self.scheduler.cluster_state.assume(intent, gang.binds)
        self.scheduler.cluster_state.assume_statuses(plan)

    @rule()
    @precondition(lambda self: self.command)
    def carry_out(self):
        intent = next(iter(self.command))
        for bind in self.command[intent]:
            uid, node = bind.uid, bind.node
            name = bind.pod.partition("/")[2]
            held, at = self.truth.get(name, ("", ""))
            if held != uid:
                result = Result.GONE
            elif at:
                result = Result.BOUND if at == node else Result.CONFLICT
            else:
                result = Result.BOUND
                assert uid not in self.bound, "bound twice"
                self.bound[uid] = node
                self.truth[name] = (uid, node)
                self.changes.append((name, self.truth[name]))
            self.outcomes.append((intent, bind, result))
            self.outcome_stream.append((intent, bind, result))
        del self.command[intent]

    @rule(intent_fails=st.booleans())
    @precondition(lambda self: self.command)
    def give_up(self, intent_fails):
        intent = next(reversed(self.command))
        for bind in self.command.pop(intent):
            self.outcomes.append((intent, bind, Result.FAILED))
            self.outcome_stream.append((intent, bind, Result.FAILED))

    @rule()
    @precondition(lambda self: self.outcomes)
    def hear_the_outcomes(self):
        for intent, bind, result in self.outcomes:
            self.scheduler.cluster_state.outcome(intent, [(bind.uid, result)])
        self.outcomes.clear()

    @rule(data=st.data())
    @precondition(lambda self: self.changes)
    def hear_a_fact(self, data):
        self.hear_of(data.draw(st.sampled_from(sorted({name for name, _ in self.changes}))))

    def fold(self, name, fact):
        uid, node = fact
        if node is None:
            self.scheduler.delete(kinds.POD, f"ns/{name}", uid=uid)
        else:
            group = name.partition("-")[0]
            self.scheduler.pod(name, group, cpu=f"{SIZE}m", uid=uid, node=node)

    @rule()
    def start_anew(self):
        self.scheduler = Cluster()
        self.scheduler.cluster_state = ClusterState(states=STATES)
        self.scheduler.queue("default")
        self.tell_the_fixed_facts()
        for name, fact in self.state.items():
            self.fold(name, fact)
        for intent, binds in self.command.items():
            self.scheduler.cluster_state.assume(intent, binds)
        for intent, bind, result in self.outcome_stream:
            if result is Result.BOUND and bind.uid not in self.gone():
                self.scheduler.cluster_state.assume(intent, [bind])
        self.outcomes.clear()

    def gone(self):
        return {uid for uid, node in self.state.values() if node is None}

    # --- what must hold ----------------------------------------------------------------------

    @invariant()
    def no_node_is_beyond_its_room(self):
        for name, room in ROOM.items():
            used = sum(SIZE for _, node in self.truth.values() if node == name)
            assert used <= room, name

    @invariant()
    def the_ledger_is_the_sum_of_its_pods(self):
        assert self.scheduler.cluster_state.audit() == []


World.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestScheduleBindAndRestart = World.TestCase
