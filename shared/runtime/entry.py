"""The first steps of a service process: settings, then everything else.

Flags are read before the service is imported, so that a wrong one, `--help` or `--version` is
answered at once, and nothing that a service needs is loaded for a process that ends there.
"""

import importlib
import os
import sys
from typing import NoReturn, TypeVar

from shared.runtime.common import CommonSettings
from shared.runtime.errors import Rejected
from shared.runtime.settings import WRONG_SETTINGS, HelpRequested, load

S = TypeVar("S", bound=CommonSettings)


def start(service: str, settings_type: type[S]) -> NoReturn:
    """Run `services.<service>.app` until a signal or a failure, then exit the process."""
    settings = settings_or_exit(service, settings_type)
    from shared.runtime.service import run  # and all that it loads: only after the flags are right

    app = importlib.import_module(f"services.{service}.app")
    run(service, settings, app.build)


def settings_or_exit(service: str, settings_type: type[S]) -> S:
    """Return the settings, or end the process after the help page or one line of refusal."""
    if sys.flags.optimize:
        _refuse("python -O removes the asserts that guard our promises: run without")
    try:
        return load(settings_type, service=service, argv=sys.argv[1:], environ=os.environ)
    except HelpRequested as page:
        sys.stdout.write(f"{page}\n")
        sys.exit(0)
    except Rejected as error:
        _refuse(str(error))


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(WRONG_SETTINGS)
