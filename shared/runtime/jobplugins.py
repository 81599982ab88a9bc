"""Loads the job plugins of other distributions at the start of a service (`shared.jobplugins`)."""

from shared.entry_points import BadPlugin
from shared.jobplugins.catalogue import installed
from shared.jobplugins.foreign import GROUP
from shared.runtime.errors import Rejected


def load_job_plugins() -> None:
    """Put what is installed into the catalogue. Raises Rejected for one that cannot be loaded."""
    try:
        installed()
    except BadPlugin as error:
        raise Rejected(str(error), field=GROUP) from error
