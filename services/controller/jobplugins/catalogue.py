"""The job plugins by name: one more plugin is one more row (`interface.JobPlugin`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from services.controller.jobplugins.env import Env
from services.controller.jobplugins.hcclrank import HcclRank
from services.controller.jobplugins.interface import JobPlugin
from services.controller.jobplugins.mpi import Mpi
from services.controller.jobplugins.pytorch import PyTorch
from services.controller.jobplugins.ray import Ray
from services.controller.jobplugins.ssh import Ssh
from services.controller.jobplugins.svc import Svc
from services.controller.jobplugins.tensorflow import TensorFlow
from shared.api.batch import Job

_ALL: Final = (Svc(), Env(), Ssh(), TensorFlow(), PyTorch(), Mpi(), Ray(), HcclRank())
"""In the order in which they edit: hcclrank reads the rank that pytorch gives (JP8)."""

PLUGINS: Final[Mapping[str, JobPlugin]] = {plugin.name: plugin for plugin in _ALL}


def plugins_of(job: Job) -> Iterator[tuple[str, JobPlugin, Sequence[str]]]:
    """Yield (name, plugin, arguments) of a valid job's plugins, always in the catalogue's order."""
    for name, plugin in PLUGINS.items():
        if name in job.spec.plugins:
            yield name, plugin, job.spec.plugins[name]
