"""Structured logs on stderr: JSON lines for machines, coloured text for a person.

One event name per decision, in the past tense, with keys instead of prose. `service`,
`instance`, `cycle` and `cause` come from context variables, so that no call repeats them.
Credentials never get out: values under telling keys and passwords in URLs are masked at any
depth. Lines pass a bounded queue to a thread of their own, so that a reader of stderr that
stalls (a full pipe) cannot freeze a leader; what does not fit is dropped and counted. The thread
wakes up a hundred times a second at most, and writes what has come together.
"""

import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Final, TextIO, cast

import structlog
from typing_extensions import override

_SECRET_KEYS: Final = re.compile(
    r"token|passw|authorization|secret|client[-_]key[-_]data|credential|cookie", re.IGNORECASE
)
_URL_PASSWORD: Final = re.compile(r"(://[^/@\s:]*:)[^/@\s]*@")
_BEARER: Final = re.compile(r"(?i)(bearer\s+)[\w.~+/=-]+")
_MASK: Final = "***"
_QUEUE_LINES: Final = 10_000
_FLUSH_S: Final = 1.0
_PAUSE_S: Final = 0.01

Logger = structlog.typing.FilteringBoundLogger
"""The type of `Context.log`."""


class LineWriter:
    """Writes lines from a thread of its own; the caller never waits."""

    def __init__(self, stream: TextIO) -> None:
        self.dropped = 0
        self._stream = stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="log-writer", daemon=True)
        self._thread.start()

    def msg(self, message: str) -> None:
        """Take one line; structlog calls this for each level."""
        if self._lines.qsize() < _QUEUE_LINES:
            self._lines.put(message)
        else:
            self.dropped += 1

    log = debug = info = warning = warn = error = critical = exception = fatal = failure = msg

    def close(self) -> None:
        """Write what is waiting, for a moment at most; later lines are lost."""
        self._lines.put(None)
        self._thread.join(_FLUSH_S)

    def _work(self) -> None:
        is_open = True
        while is_open:
            lines = [self._lines.get()]
            while not self._lines.empty():
                lines.append(self._lines.get())
            is_open = None not in lines
            self._write([line for line in lines if line is not None])
            if is_open:
                time.sleep(_PAUSE_S)

    def _write(self, lines: list[str]) -> None:
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):
            self.dropped += len(lines)


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Mask credentials in an event, at any depth (a structlog processor)."""
    return {key: _masked(key, value) for key, value in event.items()}


def _masked(key: str, value: object) -> object:
    if isinstance(value, str):
        return _MASK if _is_secret(key) else _masked_text(value)
    if isinstance(value, bytes):
        return _MASK if _is_secret(key) else value
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        return [_masked(key, item) for item in value]
    if isinstance(value, Mapping):
        return {k: _masked(str(k), v) for k, v in value.items()}
    return value


@lru_cache(maxsize=4096)
def _is_secret(key: str) -> bool:
    return _SECRET_KEYS.search(key) is not None


def _masked_text(text: str) -> str:
    """Look for what a pattern needs before the pattern: most lines have neither."""
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\1{_MASK}@", text)
    if "bearer" in text.lower():
        text = _BEARER.sub(rf"\1{_MASK}", text)
    return text


class _Bridge(logging.Handler):
    """Sends what libraries log through the same processors."""

    def __init__(self, log: Logger) -> None:
        super().__init__()
        self._log = log

    @override
    def emit(self, record: logging.LogRecord) -> None:
        exception = record.exc_info if record.exc_info and record.exc_info[0] else None
        self._log.log(
            record.levelno,
            "library_said",
            library=record.name,
            message=record.getMessage(),
            exc_info=exception,
        )


def configure(
    *, service: str, instance: str, level: str, form: str, stream: TextIO
) -> tuple[Logger, LineWriter]:
    """Set up logging for this process and return its logger and the writer to close at the end.

    `form` is `auto`, `json` or `console` (see `CommonSettings.log_format`).
    """
    console = form == "console" or (form == "auto" and stream.isatty())
    renderer: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    )
    writer = LineWriter(stream)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer[:-1],
            redact,
            renderer[-1],
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(service=service, instance=instance)
    log = cast("Logger", structlog.get_logger())
    root = logging.getLogger()
    root.handlers[:] = [_Bridge(log)]
    root.setLevel(max(logging.getLevelNamesMapping()[level.upper()], logging.INFO))
    return log, writer


def of_service(writer: LineWriter, *, service: str, instance: str, level: str) -> Logger:
    """Return the logger of one service of several in this process, where `configure` has run.

    The names hold for the present task and those that it makes.
    """
    structlog.contextvars.bind_contextvars(service=service, instance=instance)
    wrapper = structlog.make_filtering_bound_logger(level)
    return cast("Logger", structlog.wrap_logger(writer, wrapper_class=wrapper))


def stderr() -> TextIO:
    """Return the stream that logs go to."""
    return sys.stderr
