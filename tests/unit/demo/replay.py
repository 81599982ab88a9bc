"""Plays the recorded demo again: every event at its time, a refresh each quarter of a second.

`python -m tests.unit.demo.replay` writes the golden files of `test_recorded_run`.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pumice.demo.model import Seen, WatchChange, WatchOp
from pumice.demo.output import PlainOutput
from pumice.demo.summary import timeline, totals
from pumice.demo.view import DemoFrame, frame
from shared.api.kinds import JOB, NODE, POD, PODGROUP, decode
from tests.unit.demo.objects import Story

FILE = Path(__file__).with_name("run.jsonl")
GOLDEN = Path(__file__).with_name("golden")
KINDS = {kind.kind: kind for kind in (NODE, JOB, PODGROUP, POD)}
REFRESH_S = PlainOutput.refresh_s


class Line(msgspec.Struct):
    at_s: float
    op: WatchOp
    kind: str
    object: msgspec.Raw


def events() -> Iterator[tuple[float, WatchChange]]:
    """Yield the recorded events with their times."""
    decoder = msgspec.json.Decoder(Line)
    for text in FILE.read_bytes().splitlines():
        line = decoder.decode(text)
        obj: Seen = decode(KINDS[line.kind], line.object)
        yield line.at_s, WatchChange(op=line.op, obj=obj)


def replay(until_s: float = float("inf")) -> Story:
    """Return the story as of a refresh at `until_s`, with each event folded at its own time."""
    story, moments, refresh = Story(), [], 0.0
    for at_s, change in events():
        while at_s > refresh + REFRESH_S:
            refresh += REFRESH_S
            if refresh > until_s:
                return story
            story.refresh(refresh, moments)
            moments = []
        moments += story.scene.fold(change, at_s)
    story.refresh(refresh + REFRESH_S, moments)
    return story


def screen(story: Story, now_s: float, width: int, height: int) -> str:
    """Return one frame as text."""
    picture = DemoFrame(
        scene=story.scene,
        log=story.log,
        expected=5,
        now_s=now_s,
        versions="kube-apiserver 1.36.3, nats-server 2.15.1",
    )
    return "".join(f"{line.plain.rstrip()}\n" for line in frame(picture, width, height))


def plain(story: Story) -> str:
    """Return what a stream that is no terminal gets."""
    out = io.StringIO()
    output = PlainOutput(out)
    output.report(story.log)
    output.write(timeline(story.scene, output.width))
    return out.getvalue() + "".join(f"{line}\n" for line in totals(story.scene))


def pages() -> dict[str, str]:
    """Return the golden files: in the thick of it, at the end, and all the lines."""
    full_s = next(s.at_s for s in replay().log if s.text.startswith("gang waits")) + 2 * REFRESH_S
    full, end = replay(full_s), replay()
    return {
        "full-80x24.txt": screen(full, full_s, 80, 24),
        "full-120x34.txt": screen(full, full_s, 120, 34),
        "end-80x24.txt": screen(end, 99.9, 80, 24),
        "plain.txt": plain(end),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (GOLDEN / name).write_text(text)
