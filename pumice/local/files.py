"""Writing the small files of a data directory: private ones, and ones that are replaced whole."""

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace a file by one that only its owner may read, from its first byte on; never half."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)
