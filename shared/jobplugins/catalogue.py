"""The job plugins by name: one more plugin is one more row (`interface.JobPlugin`).

Other distributions add theirs by entry point (`foreign`). They are loaded once per process, at its
start, and belong to the catalogue from then on: which are there is a fact of the installation, as
which of our own modules there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from shared.api.batch import Job
from shared.jobplugins.env import EnvVariables
from shared.jobplugins.foreign import load_plugins
from shared.jobplugins.hcclrank import HcclRank
from shared.jobplugins.interface import JobPlugin
from shared.jobplugins.mpi import Mpi
from shared.jobplugins.pytorch import PyTorch
from shared.jobplugins.ray import Ray
from shared.jobplugins.ssh import Ssh
from shared.jobplugins.svc import Svc
from shared.jobplugins.tensorflow import TensorFlow

_ALL: Final = (Svc(), EnvVariables(), Ssh(), TensorFlow(), PyTorch(), Mpi(), Ray(), HcclRank())
"""In the order in which they edit: hcclrank reads the rank that pytorch gives (JP8)."""

PLUGINS: Final[Mapping[str, JobPlugin]] = {plugin.name: plugin for plugin in _ALL}


@cache
def installed() -> Mapping[str, JobPlugin]:
    """Return our own plugins, then those of other distributions, by name.

    Raises BadPlugin with distribution and entry point for one that cannot be loaded; services call
    it at their start, so that they report it there.
    """
    return {**PLUGINS, **load_plugins(PLUGINS)}


def plugins_of(job: Job) -> Iterator[tuple[str, JobPlugin, Sequence[str]]]:
    """Yield (name, plugin, arguments) of a valid job's plugins, always in the catalogue's order."""
    for name, plugin in installed().items():
        if name in job.spec.plugins:
            yield name, plugin, job.spec.plugins[name]
