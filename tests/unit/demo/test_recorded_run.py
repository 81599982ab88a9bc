"""A real run, recorded from the API server's watches and told again."""

from itertools import pairwise

import pytest
from msgspec.structs import astuple

from shared.api.batch import JobPhase
from tests.unit.demo.replay import GOLDEN, events, pages, replay


@pytest.mark.parametrize(
    "page", ["full-80x24.txt", "full-120x34.txt", "end-80x24.txt", "plain.txt"]
)
def test_it_looks_as_it_was_looked_at_and_found_good(page):
    assert pages()[page].splitlines() == (GOLDEN / page).read_text().splitlines()


def test_every_gang_went_through_every_step_in_order():
    gangs = replay().scene.in_order()
    assert len(gangs) == 5
    for gang in gangs:
        assert gang.phase is JobPhase.COMPLETED
        created, admitted, first, last, running, ended = astuple(gang.milestones)
        assert created < admitted < first <= last < ended
        assert first < running < ended


def test_no_node_is_ever_shown_with_more_than_it_has():
    story = replay(until_s=-1.0)
    for at_s, change in events():
        story.scene.fold(change, at_s)
        for node in story.scene.nodes.values():
            assert story.scene.load(node.name).cpu_milli <= node.cpu_milli


def test_nothing_is_left_on_the_nodes_at_the_end():
    scene = replay().scene
    assert len(scene.nodes) == 8
    assert all(scene.load(name).pods == 0 for name in scene.nodes)


def test_sentences_come_in_the_order_of_their_times():
    times = [sentence.at_s for sentence in replay().log]
    assert all(earlier <= later for earlier, later in pairwise(times))


def test_the_late_gang_waited_with_a_reason_and_was_placed_when_another_had_ended():
    log = [sentence for sentence in replay().log if sentence.subject == "waits-for-room"]
    waited = next(i for i, s in enumerate(log) if s.text.startswith("gang waits: "))
    bound = next(i for i, s in enumerate(log) if "bound" in s.text)
    assert waited < bound
    scene = replay().scene
    placed_s = scene.gangs["default/waits-for-room"].milestones.first_bound_s
    assert min(gang.milestones.ended_s for gang in scene.in_order()) < placed_s
