"""By which name the program was called: it is `pumice`, and a plugin of kubectl, too."""

import sys
from pathlib import Path


def is_plugin() -> bool:
    """Tell whether kubectl runs this program as its plugin."""
    return Path(sys.argv[0]).name.startswith("kubectl")


def words() -> str:
    """Return the words by which a user calls the program."""
    return "kubectl pumice" if is_plugin() else "pumice"
