"""Laws of expressions about devices: whatever tenants write costs a decision nothing."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.testing import Cluster, binds_of
from services.scheduler.adapters.expressions import ExpressionEvaluator
from services.scheduler.policy.catalog import states
from services.scheduler.policy.devices.selectors import SelectorFault, content_of
from shared.api.resource import Device
from tests.unit.scheduler.devices import DRIVER, claim, request, using
from tests.unit.scheduler.hostile_expressions import LENGTH_MAX, draw
from tests.unit.scheduler.test_allocating_devices import gang, world_of

BENIGN = f'device.driver == "{DRIVER}"'
DEVICE = content_of(DRIVER, Device(name="d"))


class Evaluators:
    """The evaluator of a scheduler, which never waits, and one that waits as long as it takes."""

    def __init__(self) -> None:
        self.never = ExpressionEvaluator(wait_s=0.0)
        self.patient = ExpressionEvaluator(wait_s=50.0)

    def close(self) -> None:
        self.never.close()
        self.patient.close()


@pytest.fixture(scope="module")
def evaluators() -> Iterator[Evaluators]:
    found = Evaluators()
    yield found
    found.close()


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_any_expression_ends_with_a_verdict_and_the_next_one_is_served(evaluators, rng: Random):
    expression = draw(rng)
    assert len(expression) <= LENGTH_MAX
    evaluators.patient.begin()
    verdict = evaluators.patient.verdict("ns", expression, DEVICE)
    assert isinstance(verdict, bool | SelectorFault)
    evaluators.patient.begin()
    assert evaluators.patient.verdict("other", f"{rng.random()} >= 0.0 && {BENIGN}", DEVICE) is True


@given(st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_a_decision_does_not_evaluate_and_decides_for_others_as_if_nothing_were_there(
    evaluators, rng: Random
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pumice.testing.STATES", states(evaluator=evaluators.never))
        hostile, without = _world(), _world()
        for number in range(rng.randint(1, 20)):
            claim(hostile, f"bad-{number}", request("r", draw(rng)))
            hostile.group(f"bad-{number}", created="2026-02-01T00:00:00Z")
            hostile.pod(f"bad-{number}-0", f"bad-{number}", cpu="1", **using(f"bad-{number}"))
        assert _binds(hostile) == _binds(without)


def _world() -> Cluster:
    world = world_of({"n1": 2, "n2": 2})
    gang(world, "g", 3)
    return world.gang("plain", tasks=2)


def _binds(world: Cluster) -> dict[str, str]:
    return {pod: node for pod, node in binds_of(world.decide()).items() if pod[:3] != "bad"}
