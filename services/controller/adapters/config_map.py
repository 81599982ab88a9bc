"""A configuration in a key of a ConfigMap, parsed whenever its text changes.

If it is invalid, the former one stays in force and the ConfigMap gets an Event with the reason.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from services.controller.adapters.reconciler import ControllerContext
from services.controller.config_text import BadConfigError
from shared.api import kinds
from shared.api.meta import ObjectMeta
from shared.contracts.subjects import split_key
from shared.runtime.errors import Gone, Rejected

_C = TypeVar("_C")


class _ConfigMap(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class ConfigMapReader(Generic[_C]):
    """Reads one configuration; `name` begins the names of its log events."""

    def __init__(
        self,
        manager: ControllerContext,
        at: str,
        *,
        key: str,
        name: str,
        parse: Callable[[str], _C],
    ) -> None:
        """Read `key` of the ConfigMap whose own key is `at`; `parse` raises BadConfigError."""
        self._kube = manager.kube
        self._recorder = manager.recorder
        self._log = manager.env.log
        self._place = split_key(at)
        self._key = key
        self._name = name
        self._parse = parse
        self._text = ""
        self.is_there = False
        """Whether the ConfigMap was there when it was last asked for."""

    async def changed(self) -> _C | None:
        """Return the configuration if it has changed and is valid, else None."""
        try:
            body = await self._kube.get(kinds.CONFIGMAP, *self._place)
        except Gone:
            self.is_there, self._text = False, ""
            return None
        except Rejected as error:
            self._log.warning(f"{self._name}_config_not_read", reason=str(error))
            return None
        found = msgspec.json.decode(body, type=_ConfigMap)
        self.is_there, text = True, found.data.get(self._key, "")
        if text == self._text:
            return None
        self._text = text
        try:
            return self._parse(text)
        except BadConfigError as error:
            self._log.warning(f"{self._name}_config_refused", reason=str(error))
            self._recorder.object_event(
                kinds.CONFIGMAP, found.metadata, "InvalidConfig", str(error), warning=True
            )
            return None
