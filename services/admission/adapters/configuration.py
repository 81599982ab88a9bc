"""The file of `--admission-conf`: read at the start, and again when it changes (W02, W30).

A file that cannot be read any more leaves the last good groups in force, and says so.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from services.admission.rules.groups import BadConfiguration, read_configuration
from services.admission.rules.review import Terms
from shared.runtime.clock import Clock
from shared.runtime.errors import Rejected
from shared.runtime.logs import Logger

_LOOK_S: Final = 1.0
"""Files are polled: a mounted ConfigMap changes by a link, which not every watcher sees."""


class Configuration:
    """The terms of the rules, the file's groups among them; a part that rereads the file."""

    name: Final = "admission-conf"

    def __init__(
        self,
        path: str,
        terms: Terms,
        *,
        changed: Callable[[], None],
        clock: Clock,
        log: Logger,
    ) -> None:
        """Read the file for the first time. Raises Rejected when it cannot be used."""
        self._path = Path(path) if path else None
        self._changed = changed
        self._clock = clock
        self._log = log
        self._text = ""
        self._terms = terms
        if self._path is not None:
            try:
                self._take(self._path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, BadConfiguration) as error:
                raise Rejected(
                    f"--admission-conf: {self._path}: {error}", field="admission-conf"
                ) from error

    @property
    def terms(self) -> Terms:
        """Return the terms of now."""
        return self._terms

    async def run(self) -> None:
        """Reread the file when it changes, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_S)
            if self._path is not None:
                self._look(self._path)

    def _look(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            if text == self._text:
                return
            self._text = text
            self._take(text)
        except (OSError, UnicodeDecodeError, BadConfiguration) as error:
            self._log.error("admission_conf_refused", file=str(path), reason=str(error))
            return
        self._log.info("admission_conf_read", file=str(path))
        self._changed()

    def _take(self, text: str) -> None:
        self._text = text
        groups = read_configuration(text)
        self._terms = msgspec.structs.replace(self._terms, resource_groups=groups)
