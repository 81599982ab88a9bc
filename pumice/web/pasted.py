"""Reads a Job that a user pastes, as YAML or JSON, into plain data. Pure."""

from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

MOST_BYTES: Final = 1 << 20


class PastedError(ValueError):
    """The text holds no Job; the message is for its author."""


class _Loader(yaml.SafeLoader):
    """Refuses aliases: a few lines of them can stand for gigabytes."""

    @override
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise PastedError("YAML aliases are not taken here")
        return super().compose_node(parent, index)


def job_in(text: str) -> bytes:
    """Return the first Job of the documents as JSON. Raises PastedError."""
    try:
        documents = [found for found in yaml.load_all(text, _Loader) if isinstance(found, dict)]
        jobs = [found for found in documents if _is_job(found)]
        if jobs:
            return msgspec.json.encode(jobs[0])
    except (yaml.YAMLError, RecursionError) as error:
        raise PastedError(
            f"this is neither YAML nor JSON: {' '.join(str(error).split())}"
        ) from error
    except (TypeError, ValueError) as error:
        raise PastedError(str(error)) from error
    found = documents[0].get("kind", "an object without kind") if documents else "no object"
    raise PastedError(f"a Job of batch.volcano.sh is wanted, and here is {found}")


def _is_job(found: dict[Any, Any]) -> bool:
    return found.get("kind") == "Job" and str(found.get("apiVersion")).startswith("batch.volcano.")
