"""How long a mere change of counts waits for the next one."""

import pytest

from services.controller.job.reconciler import counts_delay_s


@pytest.mark.parametrize(("backlog", "waits_s"), [(0, 0.5), (100, 1.5), (450, 5.0), (10_000, 5.0)])
def test_counts_wait_the_longer_the_more_jobs_wait_for_their_pods(
    backlog: int, waits_s: float
) -> None:
    assert counts_delay_s(backlog) == pytest.approx(waits_s)


@pytest.mark.parametrize(("starting", "waits_s"), [(1, 5.0), (101, 15.0), (10_000, 30.0)])
def test_counts_of_a_job_that_starts_wait_for_its_phase(starting: int, waits_s: float) -> None:
    assert counts_delay_s(0, starting=starting) == pytest.approx(waits_s)
