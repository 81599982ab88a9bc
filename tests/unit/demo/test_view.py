"""The screen, at the sizes that terminals have."""

import pytest
from rich.console import Console

from pumice.demo.bars import shares, strip
from pumice.demo.model import Scene, Stage
from pumice.demo.view import DemoFrame, Screen, frame
from tests.support.structs import node
from tests.unit.demo.objects import NO_ROOM, Story, full_cluster, job_of, seen, worker_pod

SIZES = [(80, 24), (120, 34), (200, 60), (60, 14), (40, 10), (20, 5)]


def picture(story: Story) -> DemoFrame:
    return DemoFrame(
        scene=story.scene,
        log=story.log,
        expected=4,
        now_s=4.2,
        versions="kube-apiserver 1.36.3, nats-server 2.15.1",
    )


def plain(story: Story, width: int, height: int) -> list[str]:
    return [line.plain.rstrip() for line in frame(picture(story), width, height)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_frame_fits_any_terminal(width, height):
    for story in (full_cluster(), full_cluster("tensorflow-benchmark-" + "x" * 200), Story()):
        lines = frame(picture(story), width, height)
        assert len(lines) <= height
        assert max(line.cell_len for line in lines) <= width


@pytest.mark.parametrize(("width", "height"), SIZES[:3])
def test_every_gang_and_node_is_on_a_screen_of_usual_size(width, height):
    text = "\n".join(plain(full_cluster(), width, height))
    for name in ("tensorflow-benchmark", "twenty-together", "elastic", "waits-for-room"):
        assert f"\n {name} " in text
    for number in range(8):
        assert f" node-{number} " in text


def test_why_a_gang_waits_stands_below_it_in_full():
    lines = plain(full_cluster(), 80, 24)
    row = next(i for i, line in enumerate(lines) if line.startswith(" waits-for-room"))
    reason = " ".join(line.strip() for line in lines[row + 1 : row + 3])
    assert reason == f"waits: {NO_ROOM}"


def test_a_long_job_name_is_cut_and_leaves_the_columns_where_they_are():
    lines = plain(full_cluster("tensorflow-benchmark-" + "x" * 200), 80, 24)
    head = next(line for line in lines if line.startswith(" job "))
    row = next(line for line in lines if line.startswith(" tensorflow-"))
    assert "…" in row
    assert row.index("Running") == head.index("phase")


def test_jobs_are_the_last_to_give_way_on_a_low_terminal():
    lines = plain(full_cluster(), 80, 12)
    assert any(line.startswith(" waits-for-room") for line in lines)
    assert not any("What happens" in line for line in lines)


def test_nodes_that_do_not_fit_are_counted():
    story = Story()
    story.at(1.0, *(seen(node(f"node-{i}")) for i in range(100)))
    lines = plain(story, 80, 24)
    assert any("more lines" in line for line in lines)
    assert "0 of 800 cpu used" in lines[1]


def test_the_screen_follows_a_resize():
    console = Console(width=80, height=24, color_system=None)
    screen = Screen(picture(full_cluster()))
    for size in ((120, 34), (60, 14)):
        console.width, console.height = size
        with console.capture() as shown:
            console.print(screen, height=size[1])
        lines = shown.get().splitlines()
        assert len(lines) == size[1]
        assert max(len(line) for line in lines) == size[0]


def test_a_strip_has_a_character_per_pod_and_scales_down_when_there_is_no_room():
    scene = Scene()
    scene.fold(seen(job_of("train", 100)), 1.0)
    for i in range(50):
        scene.fold(seen(worker_pod("train", i, "node-0", "Running" if i < 25 else "Pending")), 1.0)
    gang = scene.gangs["default/train"]
    assert strip(gang, "cyan", 200).plain == "●" * 25 + "○" * 25 + "·" * 50
    assert strip(gang, "cyan", 8).plain == "●●○○····"
    assert gang.count(Stage.RUNNING) == 25


@pytest.mark.parametrize(
    ("amounts", "cells", "expected"),
    [
        ([1, 1], 10, [5, 5]),
        ([1, 2], 10, [3, 7]),
        ([1, 999], 10, [1, 9]),
        ([0, 0], 10, [0, 10]),
        ([0, 5], 3, [0, 3]),
        ([1, 1, 1], 2, [1, 1, 0]),
        ([], 5, []),
    ],
)
def test_cells_are_divided_in_proportion_and_nothing_vanishes(amounts, cells, expected):
    assert shares(amounts, cells) == expected
