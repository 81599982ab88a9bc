"""Writes small files of a data directory, with mode 0600 or replaced as a whole."""

import os
import tempfile
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner may read, from its first byte on; never half."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
