"""docs/states.md shows the tables that the controllers act by, and nothing else."""

import re
from itertools import product

from services.controller.job.facts import Counts
from services.controller.job.phases import TABLE
from shared.api.batch import JobPhase, JobSpec, JobStatus, TaskSpec
from tools.write_states import PAGE, render


def test_the_page_is_what_the_tables_say():
    assert PAGE.read_text() == render(), "run `make crds`"


def test_every_phase_of_a_job_is_drawn_and_can_be_reached():
    reached = set(re.findall(r"--> (\w+)", PAGE.read_text()))
    assert {phase.value for phase in JobPhase} <= reached


def test_a_rule_leads_where_its_words_say_and_nowhere_else():
    spec = JobSpec(tasks=(TaskSpec(name="a", replicas=2),), min_available=1, max_retry=1)
    rules = {id(move.then): move.then for rows in TABLE.values() for move in rows.values()}
    for rule in filter(None, rules.values()):
        led = set()
        for numbers in product(range(3), repeat=5):
            pending, running, succeeded, failed, terminating = numbers
            counts = Counts(
                pending=pending,
                running=running,
                succeeded=succeeded,
                failed=failed,
                terminating=terminating,
            )
            for retries in (0, 1):
                led.add(rule.decide(spec, JobStatus(retry_count=retries), counts))
        assert led - {None} == set(rule.leads_to)
