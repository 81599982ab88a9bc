"""The configuration file: read at start, reread at once when it is replaced, also by rename (K06).

A file that cannot be used keeps the configuration that is in force and says so once per content.
Looked at by its size, time and inode each fifth of a second: that sees a rename, a rewrite and
the symbolic link swap of a mounted ConfigMap alike, on any file system.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from services.scheduler.config import DEFAULT_TEXT, BadConfig, SchedulerConfig
from services.scheduler.decide import configure
from services.scheduler.policy.catalog import PLUGINS, Plugins
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected
from shared.runtime.logs import Logger

POLL_S: Final = 0.2

Note = Callable[[str, str], None]
"""Receives the file of a reload, and why it was rejected; "" if it is in force."""


def _no_note(file: str, reason: str) -> None:
    """Do nothing."""


class ConfFile:
    """Holds the configuration in force; a part of the service."""

    name: Final = "configuration"

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        log: Logger,
        changed: asyncio.Event,
        default: str | None = DEFAULT_TEXT,
        plugins: Plugins = PLUGINS,
        note: Note = _no_note,
    ) -> None:
        """Read the file at `path`; without one `default` is in force, and None is refused."""
        self._note = note
        self._path = Path(path) if path else None
        self._default = default
        self._plugins = plugins
        self._clock = clock
        self._log = log
        self._changed = changed
        self._stamp: tuple[int, int, int] | None = None
        self.config = self._first()

    def _first(self) -> SchedulerConfig:
        """Read the file for the first time. Raises Rejected with the place in the file."""
        if self._path is None:
            if self._default is None:
                raise Rejected(
                    "--disable-default-scheduler-config: there is no --scheduler-conf",
                    field="scheduler-conf",
                )
            return self._use(self._default)
        try:
            self._stamp = self._stat()
            return self._use(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise Rejected(
                f"--scheduler-conf {self._path}: {error}", field="scheduler-conf"
            ) from error
        except BadConfig as error:
            raise Rejected(
                f"--scheduler-conf {self._path}: {error}", field="scheduler-conf"
            ) from error

    def _use(self, text: str) -> SchedulerConfig:
        config = configure(text, plugins=self._plugins)
        for warning in config.warnings:
            self._log.warning("configuration_warning", reason=warning)
        return config

    def _stat(self) -> tuple[int, int, int]:
        assert self._path is not None
        stat = self._path.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    async def run(self) -> None:
        """Look at the file until cancelled."""
        if self._path is None:
            await asyncio.Event().wait()
        while True:
            await self._clock.sleep(POLL_S)
            self._reread()

    def _reread(self) -> None:
        assert self._path is not None
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self.config = self._use(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return  # between two steps of a replacement; the next look sees the new one
        except (OSError, UnicodeDecodeError, BadConfig) as error:
            self._log.error("configuration_refused", file=str(self._path), reason=str(error))
            self._note(str(self._path), str(error))
            return
        self._log.info("configuration_reloaded", file=str(self._path))
        self._note(str(self._path), "")
        self._changed.set()


def node_labels(selectors: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the labels of `--node-selector`, each `name:value`. Raises `Rejected`."""
    found = []
    for text in selectors:
        name, _, value = (part.strip() for part in text.partition(":"))
        if not (name and value):
            raise Rejected(
                f"--node-selector: {text!r} is not of the form name:value", field="node-selector"
            )
        found.append((name, value))
    return tuple(found)
