"""The order of `pumice up` to its holder process, in a file of the data directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pumice.local import layout
from pumice.local.control_plane import Api
from pumice.local.files import write_private
from pumice.local.stack import StackOptions


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The stack that the holder has to run, and its programs."""

    stack: StackOptions
    binaries: Mapping[str, Path]


def write(directory: Path, order: Order) -> None:
    """Leave the order for the holder."""
    write_private(directory / layout.ORDER, msgspec.json.encode(order, enc_hook=str).decode())


def read(directory: Path) -> Order:
    """Return the order that `pumice up` left."""
    return msgspec.json.decode(
        (directory / layout.ORDER).read_bytes(), type=Order, dec_hook=_path_from_text
    )


def api_of(directory: Path) -> Api | None:
    """Return the kind of API server whose data a directory holds, None when it holds none."""
    if (directory / "etcd").is_dir():
        return "real"
    return "embedded" if (directory / "objects.jsonl").is_file() else None


def _path_from_text(kind: type, value: Any) -> Any:  # noqa: ANN401 - a hook of msgspec
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind)
