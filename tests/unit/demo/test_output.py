"""Which output a stream gets, and what the two write."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from pumice.demo.output import PlainOutput, TerminalOutput, choose
from pumice.demo.sentences import Sentence
from pumice.demo.view import DemoFrame
from tests.unit.demo.objects import full_cluster


class Screenlike(io.StringIO):
    """A stream that calls itself a terminal."""

    def __init__(self, encoding: str = "utf-8", *, tty: bool = True) -> None:
        super().__init__()
        self._encoding = encoding
        self._tty = tty

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


@pytest.fixture(autouse=True)
def _usual_size(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


TERM = {"TERM": "xterm-256color"}


def test_a_terminal_gets_a_picture():
    assert isinstance(choose(Screenlike(), environ=TERM), TerminalOutput)


@pytest.mark.parametrize(
    ("out", "environ"),
    [
        pytest.param(Screenlike(tty=False), TERM, id="no terminal"),
        pytest.param(Screenlike("ascii"), TERM, id="ascii"),
        pytest.param(Screenlike(), {**TERM, "NO_COLOR": "1"}, id="NO_COLOR"),
        pytest.param(Screenlike(), {**TERM, "CI": "true"}, id="CI"),
        pytest.param(Screenlike(), {"TERM": "dumb"}, id="dumb"),
        pytest.param(Screenlike(), {}, id="no TERM"),
    ],
)
def test_anything_else_gets_plain_lines(out, environ):
    assert isinstance(choose(out, environ=environ), PlainOutput)


def test_plain_lines_can_be_asked_for():
    assert isinstance(choose(Screenlike(), plain=True, environ=TERM), PlainOutput)


def test_a_terminal_too_small_to_draw_on_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("LINES", "5")
    assert isinstance(choose(Screenlike(), environ=TERM), PlainOutput)


def test_a_plain_line_has_the_time_and_no_escape():
    out = io.StringIO()
    output = PlainOutput(out)
    output.report([Sentence(at_s=3.456, subject="train", text="job Running", gang="default/train")])
    output.write([Text("total", "bold red")])
    assert out.getvalue() == "[   3.46 s] train: job Running\ntotal\n"


def test_a_plain_line_survives_an_encoding_that_lacks_its_letters():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    PlainOutput(out).write([Text("größe → 1")])
    assert out.buffer.getvalue() == b"gr??e ? 1\n"


def test_the_picture_is_on_the_second_screen_and_is_taken_away_again():
    out = Screenlike()
    output = TerminalOutput(Console(file=out, force_terminal=True, width=80, height=24))
    story = full_cluster()
    output.report([Sentence(at_s=0.5, subject="setup", text="the cluster answers")])
    assert "the cluster answers" in out.getvalue()
    output.show(
        DemoFrame(scene=story.scene, log=story.log, expected=4, now_s=4.2, versions="etcd 3.6")
    )
    shown = out.getvalue()
    assert "\x1b[?1049h" in shown
    assert "\x1b[?25l" in shown
    output.report(story.log)
    assert out.getvalue() == shown
    output.close()
    output.close()
    assert out.getvalue().count("\x1b[?1049l") == 1
    assert "\x1b[?25h" in out.getvalue()
