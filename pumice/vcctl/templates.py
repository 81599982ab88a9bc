"""The commands for JobTemplates."""

from collections.abc import Mapping

from pumice.vcctl import declared, tables
from pumice.vcctl.cluster import Cluster
from pumice.vcctl.flags import Value, text
from shared.api.kinds import JOBTEMPLATE


async def create(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Create the JobTemplates of a file."""
    return await declared.create(cluster, values, JOBTEMPLATE)


async def show(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """List the JobTemplates of a namespace."""
    return tables.templates(await cluster.items(JOBTEMPLATE, text(values, "namespace")))


async def get(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Show one JobTemplate."""
    return tables.templates([await declared.one(cluster, values, JOBTEMPLATE, "job template")])


async def delete(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Delete JobTemplates."""
    return await declared.delete(cluster, values, JOBTEMPLATE, "job template")


async def describe(cluster: Cluster, values: Mapping[str, Value]) -> str:
    """Print JobTemplates as documents."""
    return await declared.describe(cluster, values, JOBTEMPLATE)
