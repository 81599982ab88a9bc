"""The job plugins by name: one more plugin is one more row (`interface.JobPlugin`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from shared.api.batch import Job
from shared.jobplugins.env import Env
from shared.jobplugins.hcclrank import HcclRank
from shared.jobplugins.interface import JobPlugin
from shared.jobplugins.mpi import Mpi
from shared.jobplugins.pytorch import PyTorch
from shared.jobplugins.ray import Ray
from shared.jobplugins.ssh import Ssh
from shared.jobplugins.svc import Svc
from shared.jobplugins.tensorflow import TensorFlow

_ALL: Final = (Svc(), Env(), Ssh(), TensorFlow(), PyTorch(), Mpi(), Ray(), HcclRank())
"""In the order in which they edit: hcclrank reads the rank that pytorch gives (JP8)."""

PLUGINS: Final[Mapping[str, JobPlugin]] = {plugin.name: plugin for plugin in _ALL}


def plugins_of(job: Job) -> Iterator[tuple[str, JobPlugin, Sequence[str]]]:
    """Yield (name, plugin, arguments) of a valid job's plugins, always in the catalogue's order."""
    for name, plugin in PLUGINS.items():
        if name in job.spec.plugins:
            yield name, plugin, job.spec.plugins[name]
