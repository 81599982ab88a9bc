"""The two outputs of the demo: a terminal that is redrawn, and plain lines for everything else.

`choose` decides by the kind of the stream and by the environment (NO_COLOR, TERM=dumb, CI).
Both report the same sentences; `story` does not know which one it writes to.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pumice.demo.sentences import Sentence
from pumice.demo.view import SEVERITY_COLOURS, DemoFrame, Screen

_PLAIN_WIDTH: Final = 100
_LEAST: Final = (40, 10)
"""A terminal below this size (columns, lines) gets plain lines."""


class Output(Protocol):
    """The output of the demo: a terminal, or plain lines."""

    refresh_s: float
    """Seconds between two refreshes; the moments in between are reported together."""
    linger_s: float
    """Seconds for which the last frame stays."""

    def report(self, sentences: Sequence[Sentence]) -> None:
        """Show the sentences of the last refresh."""
        ...

    def show(self, frame: DemoFrame) -> None:
        """Show the whole scene, if this output has a place for it."""
        ...

    def close(self) -> None:
        """Remove the frame from the terminal; may be called twice."""
        ...

    def write(self, lines: Sequence[Text]) -> None:
        """Write lines that stay."""
        ...

    @property
    def width(self) -> int:
        """Columns that a line may have."""
        ...


class PlainOutput:
    """One line per sentence with the seconds since the beginning; flushed at once."""

    refresh_s = 0.25
    linger_s = 0.0
    width = _PLAIN_WIDTH

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def report(self, sentences: Sequence[Sentence]) -> None:
        """Write each sentence."""
        for sentence in sentences:
            self._line(f"[{sentence.at_s:7.2f} s] {sentence.subject}: {sentence.text}")

    def show(self, frame: DemoFrame) -> None:
        """Show nothing: the sentences say it all."""

    def close(self) -> None:
        """Nothing to take away."""

    def write(self, lines: Sequence[Text]) -> None:
        """Write the lines without their colours."""
        for line in lines:
            self._line(line.plain.rstrip())

    def _line(self, text: str) -> None:
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        safe = text.encode(encoding, errors="replace").decode(encoding)
        print(safe, file=self._out, flush=True)


class TerminalOutput:
    """Draws frames on the terminal's alternate screen, so that its text comes back at the end.

    Before the first frame and after the last, sentences and lines are written as they come.
    """

    refresh_s = 0.1
    linger_s = 1.5

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    @property
    def width(self) -> int:
        """Columns of the terminal as it is now."""
        return self._console.width

    def report(self, sentences: Sequence[Sentence]) -> None:
        """Write the sentences, unless a frame is drawn: it shows them."""
        if self._live is not None:
            return
        for sentence in sentences:
            self._console.print(
                Text.assemble(
                    (f"{sentence.at_s:6.1f}  ", "bright_black"),
                    (sentence.text, SEVERITY_COLOURS[sentence.severity]),
                )
            )

    def show(self, frame: DemoFrame) -> None:
        """Draw the frame at the terminal's present size."""
        if self._live is None:
            self._live = Live(console=self._console, screen=True, auto_refresh=False)
            self._live.start()
        self._live.update(Screen(frame), refresh=True)

    def close(self) -> None:
        """Switch back to the terminal's first screen."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def write(self, lines: Sequence[Text]) -> None:
        """Write the lines with their colours."""
        for line in lines:
            self._console.print(line, no_wrap=True, overflow="ignore", crop=False)


def choose(out: TextIO, *, plain: bool = False, environ: Mapping[str, str] = os.environ) -> Output:
    """Return the output to a stream: plain lines unless it is a terminal that can be drawn on."""
    if plain or not _can_draw(out, environ):
        return PlainOutput(out)
    console = Console(file=out, highlight=False)
    if console.width < _LEAST[0] or console.height < _LEAST[1]:
        return PlainOutput(out)
    return TerminalOutput(console)


def _can_draw(out: TextIO, environ: Mapping[str, str]) -> bool:
    encoding = (getattr(out, "encoding", None) or "").lower().replace("-", "")
    return (
        out.isatty()
        and encoding == "utf8"
        and not environ.get("NO_COLOR")
        and not environ.get("CI")
        and environ.get("TERM", "dumb") != "dumb"
    )
