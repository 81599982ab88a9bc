"""The unschedulable pool changes no decision: a scheduler with and one without it decide equally.

Both live through the same history; each sees the statuses that it wanted itself. What the first one
says of a waiting job it also says in the words of the second.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from services.scheduler.config import DEFAULT_TEXT
from services.scheduler.decide import configure
from services.scheduler.decision import Decision
from shared.contracts import messages as m
from tests.property.two_schedulers import Histories, check
from tests.support.laws import count_hits, lines_run, needs_hits
from tests.unit.scheduler.devices import device_class, slice_of

_TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}%s]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates}, \
{name: %s}, {name: nodeorder}, {name: binpack}]
"""
_RESERVING = (
    ", {name: reservation, arguments: {reservation.order: %s, reservation.defaultDuration: 9s}}"
)
_FAIR = ", {name: fairshare, arguments: {fairshare.resourceKey: cpu}}"
_LIMITED = (
    ", {name: limits, arguments: {limits: [{users: ['*'], resources: {cpu: 4}, jobs: 3}, "
    "{queue: a, pods: 5}]}}"
)
CONFIGURATIONS = [
    configure(DEFAULT_TEXT),
    configure('actions: "allocate, backfill"' + _TIERS % ("", "proportion")),
    configure('actions: "enqueue, allocate, backfill"' + _TIERS % ("", "capacity")),
    configure(
        'actions: "enqueue, allocate, preempt, reclaim, backfill"' + _TIERS % ("", "capacity")
    ),
    *(
        configure(
            'actions: "enqueue, allocate, backfill"' + _TIERS % (_RESERVING % order, "capacity")
        )
        for order in ("backfill", "strict")
    ),
    configure('actions: "enqueue, allocate, backfill"' + _TIERS % (_FAIR, "proportion")),
    *(
        configure(f'actions: "{actions}"' + _TIERS % (_LIMITED, "proportion"))
        for actions in ("enqueue, allocate, backfill", "allocate, backfill", "allocate, preempt")
    ),
]
queues = st.sampled_from(["a", "b"])
sizes = st.sampled_from(["1", "1", "2", "3"])
steps = st.one_of(
    st.tuples(
        st.just("submit"),
        queues,
        st.lists(sizes, min_size=1, max_size=3),
        st.sampled_from([0, 0, 0, 9]),
    ),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("rest"), st.sampled_from([1.0, 40.0])),
    st.tuples(st.just("node"), st.integers(0, 3), st.sampled_from(["0", "2", "4"])),
    st.tuples(st.just("limit"), queues, st.sampled_from(["2", "4", "8"])),
    st.tuples(st.just("usage"), queues, queues, st.sampled_from([1.0, 1000.0])),
)


@needs_hits(at_least=15)
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CONFIGURATIONS), st.lists(steps, min_size=10, max_size=50))
def test_a_scheduler_with_the_pool_of_jobs_decides_as_one_that_visits_all_of_them(config, history):
    histories = Histories(config)
    for step in history:
        skipping, visiting = histories.step(step)
        check(skipping, visiting)
    count_hits([None] * histories.unschedulable)


_DEVICE_STEPS = st.one_of(
    st.tuples(
        st.just("claims"), queues, st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2)
    ),
    st.tuples(
        st.just("claims"), queues, st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2)
    ),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("rest"), st.sampled_from([1.0, 40.0])),
    st.tuples(st.just("devices"), st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("submit"), queues, st.lists(sizes, min_size=1, max_size=3), st.just(0)),
)


class DeviceHistories(Histories):
    """Histories in which pods have claims for devices of their own."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.put("deviceclasses", _with_uid(device_class("gpu")))
        for number in range(3):
            self.devices(number, 2)

    def devices(self, node: int, count: int) -> None:
        offered = slice_of(f"s{node}", [f"d{n}" for n in range(count)], node=f"n{node}")
        self.put("resourceslices", _with_uid(offered))

    def claims(self, queue: str, counts: list[int]) -> None:
        name = f"g{len(self.sizes)}"
        for rank, count in enumerate(counts):
            asked = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
            self.put("resourceclaims", _claim(f"{name}-{rank}", [asked]))

        def using(rank: int) -> dict[str, Any]:
            return {"resourceClaims": [{"name": "c", "resourceClaimName": f"{name}-{rank}"}]}

        self.submit(queue, ["1"] * len(counts), 0, pod=using)

    @override
    def step(self, step: tuple[Any, ...]) -> tuple[Decision, Decision]:
        what, *rest = step
        if what in {"claims", "devices"}:
            getattr(self, what)(*rest)
            return self.decide()
        return super().step(step)

    @override
    def carry_out(self, decision: Decision) -> None:
        for command in decision.commands:
            for bind in command.binds if isinstance(command, m.BindGang) else ():
                for use in bind.devices:
                    name = use.claim.partition("/")[2]
                    allocation = msgspec.json.decode(use.allocation)
                    by = [{"resource": "pods", "name": bind.uid, "uid": bind.uid}]
                    status = {"allocation": allocation, "reservedFor": by}
                    asked = allocation["devices"]["results"]
                    count = {
                        "name": "r",
                        "exactly": {"deviceClassName": "gpu", "count": len(asked)},
                    }
                    self.put("resourceclaims", _claim(name, [count], status))
        super().carry_out(decision)

    @override
    def drop(self, group: str) -> None:
        for rank in range(len(self.sizes[group])):
            self.delete("resourceclaims", f"ns/{group}-{rank}", f"{group}-{rank}")
        super().drop(group)


def _claim(name: str, requests: list[Any], status: Any = None) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": {"requests": requests}},
        "status": status or {},
    }


def _with_uid(document: dict[str, Any]) -> dict[str, Any]:
    meta = {**document["metadata"], "uid": document["metadata"]["name"]}
    return {**document, "metadata": meta}


@needs_hits(at_least=20)
@settings(max_examples=60, deadline=None)
@given(st.lists(_DEVICE_STEPS, min_size=10, max_size=40))
def test_a_scheduler_with_the_pool_of_jobs_with_claims_decides_as_one_that_visits_all_of_them(
    history,
):
    histories = DeviceHistories(CONFIGURATIONS[0])
    for step in history:
        skipping, visiting = histories.step(step)
        check(skipping, visiting)
    count_hits([None] * histories.unschedulable)


def test_a_job_that_waits_for_devices_costs_a_cycle_a_glance() -> None:
    def work(jobs: int) -> int:
        histories = DeviceHistories(CONFIGURATIONS[0])
        for _ in range(jobs):
            histories.claims("a", [3])
        for _ in range(4):
            histories.decide()
        scheduler = histories.schedulers[0]
        assert len(scheduler.cluster_state.jobs.unschedulable) == jobs
        return lines_run(lambda: scheduler.decide(histories.config, now=9.0, cycle=9, token=1))

    work(1)
    assert work(200) <= work(0) + 200 * 150
