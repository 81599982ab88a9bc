"""`vcctl version`: which version of Pumice answers, under the words that Volcano's users know."""

import platform
import sys
from importlib import metadata

_NONE = "none"


def show() -> str:
    """Return the lines; ⚠ there is no Go here, and no hour at which a program was built."""
    python = f"{_NONE} (Python {platform.python_version()})"
    lines = {
        "API Version": "v1alpha1",
        "Version": f"v{metadata.version('pumice')}",
        "Git SHA": _NONE,
        "Built At": _NONE,
        "Go Version": python,
        "Go OS/Arch": f"{sys.platform}/{_machine()}",
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items())


def _machine() -> str:
    """Return the processor in Go's words."""
    own = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(own, own)
