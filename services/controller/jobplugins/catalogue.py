"""The job plugins by name: one more plugin is one more row (`interface.JobPlugin`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from services.controller.jobplugins.env import Env
from services.controller.jobplugins.interface import JobPlugin
from services.controller.jobplugins.svc import Svc
from shared.api.batch import Job

PLUGINS: Final[Mapping[str, JobPlugin]] = {"svc": Svc(), "env": Env()}


def plugins_of(job: Job) -> Iterator[tuple[str, JobPlugin, Sequence[str]]]:
    """Yield (name, plugin, arguments) of a valid job's plugins, always in the catalogue's order."""
    for name, plugin in PLUGINS.items():
        if name in job.spec.plugins:
            yield name, plugin, job.spec.plugins[name]
