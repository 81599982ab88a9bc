"""The two outputs of the demo: a terminal that is redrawn, and plain lines for everything else.

`choose` decides by what the output is and what the person asked for (NO_COLOR, TERM=dumb, CI). Both
tell the same sentences; `story` does not know which one it talks to.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pumice.demo.sentences import Sentence
from pumice.demo.view import TONES, Picture, Screen

_PLAIN_WIDTH: Final = 100
_LEAST: Final = (40, 10)
"""A terminal below this size (columns, lines) gets plain lines."""


class Teller(Protocol):
    """An output of the demo, as the story uses it."""

    glance_s: float
    """Seconds for which moments are gathered before they are told."""
    linger_s: float
    """Seconds for which the last picture stays."""

    def tell(self, sentences: Sequence[Sentence]) -> None:
        """Show the sentences of the last glance."""
        ...

    def show(self, picture: Picture) -> None:
        """Show the whole scene, if this teller has a place for it."""
        ...

    def conclude(self) -> None:
        """Take the picture away; may be called twice."""
        ...

    def write(self, lines: Sequence[Text]) -> None:
        """Write lines that stay."""
        ...

    @property
    def width(self) -> int:
        """Columns that a line may have."""
        ...


class PlainTeller:
    """One line per sentence with the seconds since the beginning; flushed at once."""

    glance_s = 0.25
    linger_s = 0.0
    width = _PLAIN_WIDTH

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def tell(self, sentences: Sequence[Sentence]) -> None:
        """Write each sentence."""
        for sentence in sentences:
            self._line(f"[{sentence.at_s:7.2f} s] {sentence.subject}: {sentence.text}")

    def show(self, picture: Picture) -> None:
        """Show nothing: the sentences say it all."""

    def conclude(self) -> None:
        """Nothing to take away."""

    def write(self, lines: Sequence[Text]) -> None:
        """Write the lines without their colours."""
        for line in lines:
            self._line(line.plain.rstrip())

    def _line(self, text: str) -> None:
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        safe = text.encode(encoding, errors="replace").decode(encoding)
        print(safe, file=self._out, flush=True)


class TerminalTeller:
    """A picture on the terminal's second screen, so that the first one comes back at the end.

    Before the first picture and after the last, sentences and lines are written as they come.
    """

    glance_s = 0.1
    linger_s = 1.5

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    @property
    def width(self) -> int:
        """Columns of the terminal as it is now."""
        return self._console.width

    def tell(self, sentences: Sequence[Sentence]) -> None:
        """Write the sentences, unless there is a picture: it shows them."""
        if self._live is not None:
            return
        for sentence in sentences:
            self._console.print(
                Text.assemble(
                    (f"{sentence.at_s:6.1f}  ", "bright_black"),
                    (sentence.text, TONES[sentence.tone]),
                )
            )

    def show(self, picture: Picture) -> None:
        """Draw the picture at the terminal's present size."""
        if self._live is None:
            self._live = Live(console=self._console, screen=True, auto_refresh=False)
            self._live.start()
        self._live.update(Screen(picture), refresh=True)

    def conclude(self) -> None:
        """Switch back to the terminal's first screen."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def write(self, lines: Sequence[Text]) -> None:
        """Write the lines with their colours."""
        for line in lines:
            self._console.print(line, no_wrap=True, overflow="ignore", crop=False)


def choose(out: TextIO, *, plain: bool = False, environ: Mapping[str, str] = os.environ) -> Teller:
    """Return the teller for an output: plain lines unless it is a terminal that can be drawn on."""
    if plain or not _can_draw(out, environ):
        return PlainTeller(out)
    console = Console(file=out, highlight=False)
    if console.width < _LEAST[0] or console.height < _LEAST[1]:
        return PlainTeller(out)
    return TerminalTeller(console)


def _can_draw(out: TextIO, environ: Mapping[str, str]) -> bool:
    encoding = (getattr(out, "encoding", None) or "").lower().replace("-", "")
    return (
        out.isatty()
        and encoding == "utf8"
        and not environ.get("NO_COLOR")
        and not environ.get("CI")
        and environ.get("TERM", "dumb") != "dumb"
    )
